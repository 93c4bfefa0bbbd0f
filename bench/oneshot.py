"""CPU and wall time of `talaria chat -q hi`, with a model that answers at once."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import peer_hermes
from bench.measure import Measurement, Times, bytecode_environment, command_path, time_programs
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.core.messages import Message, Role, Text
from talaria.storage.sqlite.open import open_sqlite

NAME = "oneshot"

_OURS = "talaria chat -q hi"
_PEER = "hermes chat -q hi"
_ANSWER = "Hello."
_EMPTY, _LARGE, _SESSIONS = "default", "large", 20_000
# Floors with their goals: bare Python, the floor of short commands, and the imports of an HTTP client.
_FLOORS: Mapping[str, tuple[list[str], float]] = {
    "python -S -E -c pass": (["-S", "-E", "-c", "pass"], 13),
    "import argparse, json": (["-c", "import argparse, json"], 5),
    "import asyncio, httptools, msgspec": (["-c", "import asyncio, httptools, msgspec"], 2),
}


def run(quick: bool) -> list[Measurement]:
    """Compare it with bare Python and with Python plus imports, and a large store with an empty one."""
    with _prepare_profiles() as (_, environment):
        _fill_store(Path(environment["TALARIA_HOME"]) / "profiles" / _LARGE / "talaria.db")
        times = time_programs(_floor_programs() | _store_programs(), rounds=5 if quick else 25, environment=environment)
    large, empty = (times[profile].cpu * 1000 for profile in (_LARGE, _EMPTY))
    return [
        *_compare_with_floors(times),
        Measurement(f"{_OURS}, CPU, {_SESSIONS:,} sessions vs none", large, "ms", 1.1, empty),
    ]


def run_with_peer(quick: bool) -> list[Measurement]:
    """Also measure Hermes with the same question, after installing it if needed; takes minutes."""
    hermes = peer_hermes.install()
    with _prepare_profiles() as (url, environment):
        peer_environment = environment | peer_hermes.prepare(Path.cwd() / "hermes", url)
        command = [hermes, *_PEER.split()[1:]]
        _check_answer(command, peer_environment)
        programs = _floor_programs() | {_PEER: command}
        times = time_programs(programs, rounds=3 if quick else 10, environment=peer_environment)
    ours, peer = times[_OURS], times[_PEER]
    return [
        *_compare_with_floors(times),
        Measurement(f"{_OURS}, CPU, vs {_PEER}", ours.cpu * 1000, "ms", 1 / 20, peer.cpu * 1000),
        Measurement(f"{_OURS}, wall, vs {_PEER}", ours.wall * 1000, "ms", 1 / 20, peer.wall * 1000),
    ]


def _floor_programs() -> dict[str, list[str]]:
    floors = {name: [sys.executable, *arguments] for name, (arguments, _) in _FLOORS.items()}
    return {_OURS: [command_path("talaria"), *_OURS.split()[1:]]} | floors


def _store_programs() -> dict[str, list[str]]:
    return {profile: [command_path("talaria"), "-p", profile, *_OURS.split()[1:]] for profile in (_EMPTY, _LARGE)}


def _fill_store(file: Path) -> None:
    """Create sessions with two messages each, and index them."""

    def add_sessions(tx: Transaction) -> None:
        for number in range(_SESSIONS):
            session = tx.sessions.create(NewSession(source="cli", title=f"Conversation {number}"))
            texts: list[tuple[Role, str]] = [("user", f"Question {number}"), ("assistant", f"Answer {number}")]
            now = datetime.now(UTC)
            tx.messages.append(session.id, [Message(role=role, parts=(Text(text),), at=now) for role, text in texts])

    database = open_sqlite(file)
    database.write(add_sessions)
    while database.run_maintenance():
        pass
    database.close()


def _compare_with_floors(times: Mapping[str, Times]) -> Iterator[Measurement]:
    ours = times[_OURS]
    for name, (_, goal) in _FLOORS.items():
        yield Measurement(f"{_OURS}, CPU, vs {name}", ours.cpu * 1000, "ms", goal, times[name].cpu * 1000)
    name, (_, goal) = next(iter(_FLOORS.items()))
    yield Measurement(f"{_OURS}, wall, vs {name}", ours.wall * 1000, "ms", goal, times[name].wall * 1000)


@contextmanager
def _prepare_profiles() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the address of a model server and an environment that uses it, in an empty working folder."""
    with TemporaryDirectory() as folder, _run_model_server() as url, chdir(folder):
        home = Path(folder) / "talaria"
        for profile in (_EMPTY, _LARGE):
            (home / "profiles" / profile).mkdir(parents=True)
            (home / "profiles" / profile / "config.toml").write_text(
                f'[model]\nprovider = "bench"\nname = "scripted"\n[providers.bench]\nbase_url = "{url}/v1"\n'
            )
        environment = {"TALARIA_HOME": str(home)}
        _check_answer([command_path("talaria"), *_OURS.split()[1:]], environment)
        yield url, environment


@contextmanager
def _run_model_server() -> Iterator[str]:
    """Run the model server in its own process and yield its address."""
    command = [sys.executable, "-m", "talaria.testing.model_server", "--reply", _ANSWER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def _check_answer(command: list[str], environment: dict[str, str]) -> None:
    """Exit unless the program prints the model's answer, so that no failure is measured."""
    done = subprocess.run(
        command,
        env=bytecode_environment() | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode or _ANSWER not in done.stdout:
        sys.exit(f"`{' '.join(command)}` did not answer (exit code {done.returncode}): {done.stdout}{done.stderr}")

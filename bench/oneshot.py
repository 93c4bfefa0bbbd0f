"""CPU and wall time of `talaria chat -q hi`, with a model that answers at once."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import chdir, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import peer_hermes
from bench.measure import Measurement, Times, bytecode_environment, installed, time_programs
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.core.messages import Message, Role, Text
from talaria.storage.sqlite.open import open_sqlite

NAME = "oneshot"

_OURS = "talaria chat -q hi"
_PEER = "hermes chat -q hi"
_ANSWER = "Hello."
_EMPTY, _LARGE, _SESSIONS = "default", "large", 20_000
# Floor by floor: the least that Python takes, what short commands are held to, and the client that asks the model.
_FLOORS: Mapping[str, tuple[list[str], float]] = {
    "python -S -E -c pass": (["-S", "-E", "-c", "pass"], 13),
    "import argparse, json": (["-c", "import argparse, json"], 5),
    "import asyncio, httptools, msgspec": (["-c", "import asyncio, httptools, msgspec"], 2),
}


def run(quick: bool) -> list[Measurement]:
    """Compare it with bare Python and with Python plus its imports, and measure it on a large store."""
    with _prepared() as (_, environment):
        _fill_store(Path(environment["TALARIA_HOME"]) / "profiles" / _LARGE / "talaria.db")
        times = time_programs(_programs() | _stores(), rounds=5 if quick else 25, environment=environment)
    full, empty = (times[profile].cpu * 1000 for profile in (_LARGE, _EMPTY))
    return [*_figures(times), Measurement(f"{_OURS}, CPU, {_SESSIONS:,} sessions to none", full, "ms", 1.1, empty)]


def run_beside_peer(quick: bool) -> list[Measurement]:
    """Also ask Hermes the same question, after installing it if needed; takes minutes."""
    hermes = peer_hermes.install()
    with _prepared() as (url, environment):
        surroundings = environment | peer_hermes.prepare(Path.cwd() / "hermes", url)
        command = [hermes, *_PEER.split()[1:]]
        _check_answer(command, surroundings)
        programs = _programs() | {_PEER: command}
        times = time_programs(programs, rounds=3 if quick else 10, environment=surroundings)
    ours, peer = times[_OURS], times[_PEER]
    return [
        *_figures(times),
        Measurement(f"{_OURS}, CPU, vs {_PEER}", ours.cpu * 1000, "ms", 1 / 20, peer.cpu * 1000),
        Measurement(f"{_OURS}, wall, vs {_PEER}", ours.wall * 1000, "ms", 1 / 20, peer.wall * 1000),
    ]


def _programs() -> dict[str, list[str]]:
    floors = {name: [sys.executable, *words] for name, (words, _) in _FLOORS.items()}
    return {_OURS: [installed("talaria"), *_OURS.split()[1:]]} | floors


def _stores() -> dict[str, list[str]]:
    return {profile: [installed("talaria"), "-p", profile, *_OURS.split()[1:]] for profile in (_EMPTY, _LARGE)}


def _fill_store(file: Path) -> None:
    """Write sessions of two messages each, indexed as a store in use is."""

    def talk(tx: Transaction) -> None:
        for number in range(_SESSIONS):
            session = tx.sessions.create(NewSession(source="cli", title=f"Conversation {number}"))
            texts: list[tuple[Role, str]] = [("user", f"Question {number}"), ("assistant", f"Answer {number}")]
            now = datetime.now(UTC)
            tx.messages.append(session.id, [Message(role=role, parts=(Text(text),), at=now) for role, text in texts])

    database = open_sqlite(file)
    database.write(talk)
    while database.run_maintenance():
        pass
    database.close()


def _figures(times: Mapping[str, Times]) -> Iterator[Measurement]:
    ours = times[_OURS]
    for name, (_, goal) in _FLOORS.items():
        yield Measurement(f"{_OURS}, CPU, vs {name}", ours.cpu * 1000, "ms", goal, times[name].cpu * 1000)
    name, (_, goal) = next(iter(_FLOORS.items()))
    yield Measurement(f"{_OURS}, wall, vs {name}", ours.wall * 1000, "ms", goal, times[name].wall * 1000)


@contextmanager
def _prepared() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the address of a model and what makes us ask it, in a folder that holds nothing else."""
    with TemporaryDirectory() as folder, _served() as url, chdir(folder):
        home = Path(folder) / "talaria"
        for profile in (_EMPTY, _LARGE):
            (home / "profiles" / profile).mkdir(parents=True)
            (home / "profiles" / profile / "config.toml").write_text(
                f'[model]\nprovider = "bench"\nname = "scripted"\n[providers.bench]\nbase_url = "{url}/v1"\n'
            )
        environment = {"TALARIA_HOME": str(home)}
        _check_answer([installed("talaria"), *_OURS.split()[1:]], environment)
        yield url, environment


@contextmanager
def _served() -> Iterator[str]:
    """Run the model in a process of its own."""
    command = [sys.executable, "-m", "talaria.testing.model_server", "--reply", _ANSWER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def _check_answer(command: list[str], environment: dict[str, str]) -> None:
    """End the measurement unless the program prints the model's answer: a quick failure is no figure."""
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

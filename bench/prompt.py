"""Time until `talaria` accepts input, and until a key shows while a reply streams, vs a bare line editor."""

import asyncio
import compileall
import gc
import subprocess
import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import TypeVar

from bench import peer_hermes
from bench.measure import SOURCE, Measurement, bytecode_environment, command_path, cpu_seconds
from talaria.testing.screen import Screen, open_screen

NAME = "prompt"
T = TypeVar("T")

_MARK = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
_BARE = f'from prompt_toolkit import PromptSession; PromptSession().prompt("{_MARK} ")'
_KEY = "\N{SECTION SIGN}"  # occurs in no reply
_TOKENS_PER_SECOND = 200
_PAUSE_SECONDS = 0.004  # epoll rounds to milliseconds: including the server's work, 5 ms give 190 tokens/s and 4 ms 235
_KEY_SECONDS = 0.05
_LONGEST_SECONDS = 1.0
_LOAD_SECONDS = 0.8
_PART = """\
## Part {number}

Tides follow the **moon**, not the sun: from one high tide to the next it takes *12 h 25 min*, give or take the wind.

1. read the `harbour` of the table,
2. add half a lunar day to its last tide,
3. say which tide comes next, and whether it is a spring tide.

```python
LUNAR_DAY = timedelta(hours=24, minutes=50)

def next_high_tide(last: datetime, *, tides: int = {number}) -> datetime:
    return last + tides * LUNAR_DAY / 2  # twice a day, nearly
```

"""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Program with a prompt: command, environment, and the marks that may begin its input line."""

    command: Sequence[str]
    environment: Mapping[str, str]
    marks: tuple[str, ...] = (_MARK,)


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from the start until a typed key is shown, and the slowest key after that."""

    wall: float
    cpu: float
    slowest_key: float


def run(quick: bool) -> list[Measurement]:
    """Measure the start of the prompt, then the delay of keys."""
    with _prepare_programs(5 if quick else 15) as (_, programs):
        starts = _run_measurement(_measure_starts(programs, rounds=5 if quick else 15))
        echoes = _run_measurement(_type_into_all(programs, rounds=1 if quick else 3, seconds=4 if quick else 12))
    return [*_compare_starts(starts), *_compare_echoes(echoes)]


def run_with_peer(quick: bool) -> list[Measurement]:
    """Also measure the start of Hermes' prompt, after installing it if needed; takes minutes."""
    hermes = peer_hermes.install()
    with _prepare_programs(5) as (url, programs):
        ours = programs["talaria"]
        home = Path(ours.environment["TALARIA_HOME"]).parent / "hermes"
        environment = {**ours.environment, **peer_hermes.prepare(home, url)}
        programs["hermes"] = Prompt([hermes], environment)
        starts = _run_measurement(_measure_starts(programs, rounds=2 if quick else 5))
    return [
        *_compare_starts(starts),
        Measurement(
            "prompt is up, wall, vs hermes", starts["talaria"].wall * 1000, "ms", 0.1, starts["hermes"].wall * 1000
        ),
        Measurement(
            "prompt is up, CPU, vs hermes", starts["talaria"].cpu * 1000, "ms", 0.1, starts["hermes"].cpu * 1000
        ),
    ]


def _run_measurement(measurement: Coroutine[None, None, T]) -> T:
    """Run a measurement; if it fails, exit with the text of the screen."""
    try:
        return asyncio.run(measurement)
    except AssertionError as error:
        sys.exit(str(error))


def _compare_starts(starts: Mapping[str, Start]) -> Iterator[Measurement]:
    ours, bare = starts["talaria"], starts["bare"]
    yield Measurement("prompt is up, wall, vs a bare prompt_toolkit", ours.wall * 1000, "ms", 3, bare.wall * 1000)
    yield Measurement("prompt is up, CPU, vs a bare prompt_toolkit", ours.cpu * 1000, "ms", 3, bare.cpu * 1000)
    yield Measurement("slowest key while modules load after the prompt", ours.slowest_key * 1000, "ms", 100)


def _compare_echoes(echoes: Mapping[str, list[float]]) -> Iterator[Measurement]:
    ours, bare = ([1000 * one for one in echoes[name]] for name in ("talaria", "bare"))
    label = f"key shows while {_TOKENS_PER_SECOND} tokens/s stream"
    yield Measurement(f"{label}, p50, vs an idle bare prompt", median(ours), "ms", 5, median(bare))
    yield Measurement(f"{label}, p99, vs an idle bare prompt", _p99(ours), "ms", 10, _p99(bare))
    yield Measurement(f"{label}, p99", _p99(ours), "ms", 30)
    yield Measurement(f"{label}, worst of {len(ours)} keys", max(ours), "ms", 30)


def _p99(samples: Sequence[float]) -> float:
    return quantiles(samples, n=100, method="inclusive")[-1]


async def _measure_starts(programs: Mapping[str, Prompt], *, rounds: int) -> dict[str, Start]:
    """Start every program once per round and return medians; the first round only warms up."""
    runs: dict[str, list[Start]] = {name: [] for name in programs}
    for _ in range(rounds + 1):
        for name, program in programs.items():
            runs[name].append(await _start_once(program))
    return {
        name: Start(
            median(one.wall for one in starts[1:]),
            median(one.cpu for one in starts[1:]),
            median(one.slowest_key for one in starts[1:]),
        )
        for name, starts in runs.items()
    }


async def _start_once(program: Prompt) -> Start:
    begun = perf_counter()
    async with open_screen(program.command, env=program.environment) as screen:
        await _await_prompt(screen, program)
        await screen.type(_KEY)
        await screen.wait_until(lambda: _KEY in screen.cursor_line, expected="the key")
        wall, cpu = screen.changed_at - begun, cpu_seconds(screen.process.pid)
        await screen.press("backspace")
        await screen.wait_until(lambda: _KEY not in screen.cursor_line, expected="no key")
        return Start(wall, cpu, max(await _type(screen, program, _LOAD_SECONDS)))


async def _type_into_all(programs: Mapping[str, Prompt], *, rounds: int, seconds: float) -> dict[str, list[float]]:
    """Type into each program in turn, and return the seconds until each key was shown."""
    echoes: dict[str, list[float]] = {name: [] for name in programs}
    gc.freeze()
    for _ in range(rounds):
        for name, program in programs.items():
            async with open_screen(program.command, env=program.environment) as screen:
                await _await_prompt(screen, program)
                if name == "bare":
                    echoes[name] += await _type(screen, program, seconds)
                else:
                    echoes[name] += await _type_during_reply(screen, program, seconds)
    return echoes


async def _type_during_reply(screen: Screen, program: Prompt, seconds: float) -> list[float]:
    await screen.type("How do tides work?\n")
    await screen.wait_for("Part 1")
    echoes = await _type(screen, program, seconds)
    parts = int(seconds * _TOKENS_PER_SECOND / 2 / len(_PART.split()))
    shown = "\n".join(screen.scrollback)
    if f"Part {parts}" not in shown or "The end" in shown:
        sys.exit(f"The reply did not stream while keys were typed:\n{screen.text}")
    return echoes


async def _type(screen: Screen, program: Prompt, seconds: float) -> list[float]:
    """Type and delete a character repeatedly, and return the seconds until each change was shown."""
    echoes: list[float] = []
    due = perf_counter()
    end = due + seconds
    while due < end:
        echoes.append(await _press(screen, program, typed=len(echoes) % 2 == 0))
        due = max(due + _KEY_SECONDS, perf_counter())
        await asyncio.sleep(due - perf_counter())
    return echoes


async def _press(screen: Screen, program: Prompt, *, typed: bool) -> float:
    """Press the key, or delete it; return the seconds until that is shown, at most one."""

    def is_shown() -> bool:
        line = screen.cursor_line  # while the screen is drawn, the cursor may be elsewhere
        return line.startswith(program.marks) and (_KEY in line) == typed

    sent = perf_counter()
    await screen.press(_KEY if typed else "backspace")
    try:
        await screen.wait_until(is_shown, seconds=_LONGEST_SECONDS)
    except AssertionError:
        return _LONGEST_SECONDS
    return screen.changed_at - sent


async def _await_prompt(screen: Screen, program: Prompt) -> None:
    """Wait until the cursor is after the prompt mark; a hint may follow it."""
    await screen.wait_until(
        lambda: screen.cursor_line.startswith(program.marks) and screen.cursor.column == 2,
        seconds=60,
        expected="a prompt",
    )


@contextmanager
def _prepare_programs(seconds: float) -> Iterator[tuple[str, dict[str, Prompt]]]:
    """Yield the address of a model whose reply takes ``seconds``, and the programs to measure."""
    compileall.compile_dir(SOURCE, quiet=1)
    with TemporaryDirectory() as folder, _run_model_server(seconds) as url:
        profile = Path(folder) / "talaria" / "profiles" / "default"
        profile.mkdir(parents=True)
        (profile / "config.toml").write_text(
            f'[model]\nprovider = "bench"\nname = "scripted"\n[providers.bench]\nbase_url = "{url}/v1"\n'
        )
        plain = bytecode_environment() | {"TERM": "xterm-256color", "HOME": folder}
        yield (
            url,
            {
                "bare": Prompt([sys.executable, "-c", _BARE], plain),
                "talaria": Prompt([command_path("talaria")], plain | {"TALARIA_HOME": str(profile.parent.parent)}),
            },
        )


@contextmanager
def _run_model_server(seconds: float) -> Iterator[str]:
    """Run the model server in its own process; its reply takes longer than ``seconds``."""
    parts = int(2 * seconds * _TOKENS_PER_SECOND / len(_PART.split()))
    reply = "".join(_PART.format(number=number) for number in range(1, parts + 1)) + "The end."
    pace = ["--pause", str(_PAUSE_SECONDS)]
    command = [sys.executable, "-m", "talaria.testing.model_server", *pace, "--reply", reply]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()

"""Measure programs in one run, and decide whether a measurement reaches its goal."""

import compileall
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import clock_gettime, perf_counter

SOURCE = Path(__file__).parent.parent / "src"


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured quantity and what it should be.

    With a ``floor`` (the least that the same work can cost, measured in the same run) the goal holds for
    ``ours / floor``; without one it holds for ``ours``. ``at_least`` turns the goal from a ceiling into a minimum.
    """

    measure: str
    ours: float
    unit: str
    goal: float
    floor: float | None = None
    at_least: bool = False

    @property
    def ratio(self) -> float | None:
        """How many times the floor ours is."""
        return None if self.floor is None else self.ours / self.floor

    @property
    def reached(self) -> bool:
        """Whether the goal is met."""
        judged = self.ours if self.ratio is None else self.ratio
        return judged >= self.goal if self.at_least else judged <= self.goal


@dataclass(frozen=True, slots=True)
class Times:
    """What one run of a program took, in seconds; CPU time is that of all its threads and children."""

    wall: float
    cpu: float


def time_programs(
    programs: Mapping[str, Sequence[str]], *, rounds: int, environment: Mapping[str, str] | None = None
) -> dict[str, Times]:
    """Run every program once a round, one after the other, and return the medians.

    The first round only warms caches up. A program that fails ends the measurement.
    """
    surroundings = bytecode_environment() | dict(environment or {})
    compileall.compile_dir(SOURCE, quiet=1)
    runs: dict[str, list[Times]] = {name: [] for name in programs}
    for _ in range(rounds + 1):
        for name, command in programs.items():
            runs[name].append(_run(command, surroundings))
    return {name: _median(times[1:]) for name, times in runs.items()}


def bytecode_environment() -> dict[str, str]:
    """Return this process's environment, but with byte code in use: without it every start is measured twice over."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def installed(script: str) -> str:
    """Return the path of a command installed next to this interpreter."""
    return str(Path(sys.executable).parent / script)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> Times:
    quiet = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
    ]
    start = perf_counter()
    child = os.posix_spawn(command[0], list(command), environment, file_actions=quiet)
    _, status, used = os.wait4(child, 0)
    wall = perf_counter() - start
    if status:
        sys.exit(f"`{' '.join(command)}` failed with exit code {os.waitstatus_to_exitcode(status)}.")
    return Times(wall=wall, cpu=used.ru_utime + used.ru_stime)


def _median(times: Sequence[Times]) -> Times:
    return Times(wall=median(one.wall for one in times), cpu=median(one.cpu for one in times))


def cpu_seconds(pid: int) -> float:
    """Return the time that the processors have spent on a process that runs."""
    # How Linux numbers the clock of another process: see clock_getcpuclockid(3).
    return clock_gettime(~pid << 3 | 2)

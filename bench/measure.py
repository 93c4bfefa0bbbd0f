"""Measurements with goals, and wall and CPU time of programs."""

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
    """One measured quantity and its goal.

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
        """Ratio of ours to the floor, if there is a floor."""
        return None if self.floor is None else self.ours / self.floor

    @property
    def reached(self) -> bool:
        """Return whether the goal is reached."""
        value = self.ours if self.ratio is None else self.ratio
        return value >= self.goal if self.at_least else value <= self.goal


@dataclass(frozen=True, slots=True)
class Times:
    """Wall and CPU time of one run of a program, in seconds; CPU time includes threads and children."""

    wall: float
    cpu: float


def time_programs(
    programs: Mapping[str, Sequence[str]], *, rounds: int, environment: Mapping[str, str] | None = None
) -> dict[str, Times]:
    """Run every program once per round, one after the other, and return median times.

    The first round only warms up caches. A program that fails ends the measurement.
    """
    full_environment = bytecode_environment() | dict(environment or {})
    compileall.compile_dir(SOURCE, quiet=1)
    runs: dict[str, list[Times]] = {name: [] for name in programs}
    for _ in range(rounds + 1):
        for name, command in programs.items():
            runs[name].append(_run(command, full_environment))
    return {name: _median(times[1:]) for name, times in runs.items()}


def bytecode_environment() -> dict[str, str]:
    """Return this process's environment with byte code enabled, so that no start compiles the sources."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def command_path(script: str) -> str:
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
    """Return the CPU time that a running process has used."""
    # The clock id of another process on Linux: see clock_getcpuclockid(3).
    return clock_gettime(~pid << 3 | 2)

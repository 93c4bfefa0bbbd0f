"""Time of a checkpoint in a workspace of 5,000 files: nothing changed, and one file changed."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from shutil import which
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from bench.measure import Measurement
from talaria.tools.checkpoints.profile_checkpoints import CheckpointOptions, ProfileCheckpoints

NAME = "checkpoints"
FILES = 5_000
_PER_FOLDER = 100


def run(quick: bool) -> list[Measurement]:
    """Compare checkpoints with `git status` in the same tree."""
    if which("git") is None:
        return []
    rounds = 5 if quick else 25
    with TemporaryDirectory() as base:
        workspace, store = Path(base, "work"), Path(base, "checkpoints")
        _create_files(workspace)
        subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
        subprocess.run(["git", "add", "-A"], cwd=workspace, check=True)
        options = CheckpointOptions(folder=store, home=Path(base, "home"), path=os.environ["PATH"])
        history = ProfileCheckpoints(options).open(workspace)
        history.record_before("first", "session", "turn")
        numbers = iter(range(10_000))

        def status() -> None:
            subprocess.run(["git", "status", "--porcelain"], cwd=workspace, check=True, capture_output=True)

        def unchanged() -> None:
            history.record_before("unchanged", "session", f"turn-{next(numbers)}")

        def one_changed() -> None:
            (workspace / "0" / "0.txt").write_text(f"changed {next(numbers)}\n")
            history.record_before("changed", "session", f"turn-{next(numbers)}")

        cpu = _milliseconds((status, unchanged, one_changed), rounds, _cpu_seconds)
        wall = _milliseconds((status, unchanged), rounds, perf_counter)
    return [
        Measurement(f"checkpoint of {FILES:,} unchanged files, CPU", cpu[1], "ms", 50),
        Measurement("the same, CPU, vs git status", cpu[1], "ms", 3, floor=cpu[0]),
        Measurement("the same, wall, vs git status", wall[1], "ms", 3, floor=wall[0]),
        Measurement("checkpoint after one file changed vs git status, CPU", cpu[2], "ms", 5, floor=cpu[0]),
    ]


def _create_files(workspace: Path) -> None:
    for number in range(FILES):
        file = workspace / str(number // _PER_FOLDER) / f"{number % _PER_FOLDER}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"line of file {number}\n" * 30)


def _milliseconds(actions: tuple[Callable[[], None], ...], rounds: int, clock: Callable[[], float]) -> list[float]:
    """Return the median milliseconds of each action by a clock; every round runs them one after the other."""
    times: list[list[float]] = [[] for _ in actions]
    for _ in range(rounds + 1):
        for durations, action in zip(times, actions, strict=True):
            began = clock()
            action()
            durations.append(1000 * (clock() - began))
    return [median(durations[1:]) for durations in times]


def _cpu_seconds() -> float:
    children = getrusage(RUSAGE_CHILDREN)
    return process_time() + children.ru_utime + children.ru_stime

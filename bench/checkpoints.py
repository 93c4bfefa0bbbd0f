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
    """Take checkpoints next to `git status` in the same tree."""
    if which("git") is None:
        return []
    rounds = 5 if quick else 25
    with TemporaryDirectory() as base:
        workspace, places = Path(base, "work"), Path(base, "checkpoints")
        _fill(workspace)
        subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
        subprocess.run(["git", "add", "-A"], cwd=workspace, check=True)
        options = CheckpointOptions(folder=places, home=Path(base, "home"), path=os.environ["PATH"])
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

        used = _milliseconds((status, unchanged, one_changed), rounds, _cpu_seconds)
        passed = _milliseconds((status, unchanged), rounds, perf_counter)
    return [
        Measurement(f"checkpoint of {FILES:,} unchanged files, CPU", used[1], "ms", 50),
        Measurement("the same vs git status", used[1], "ms", 3, floor=used[0]),
        Measurement("the same, elapsed, vs git status", passed[1], "ms", 3, floor=passed[0]),
        Measurement("checkpoint after one file changed vs git status, CPU", used[2], "ms", 5, floor=used[0]),
    ]


def _fill(workspace: Path) -> None:
    for number in range(FILES):
        file = workspace / str(number // _PER_FOLDER) / f"{number % _PER_FOLDER}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"line of file {number}\n" * 30)


def _milliseconds(works: tuple[Callable[[], None], ...], rounds: int, clock: Callable[[], float]) -> list[float]:
    """Return the median time of each by a clock, run one after the other in every round."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(rounds + 1):
        for taken, work in zip(times, works, strict=True):
            began = clock()
            work()
            taken.append(1000 * (clock() - began))
    return [median(taken[1:]) for taken in times]


def _cpu_seconds() -> float:
    children = getrusage(RUSAGE_CHILDREN)
    return process_time() + children.ru_utime + children.ru_stime

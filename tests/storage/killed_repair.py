"""Kill a repair at many points: ``python -m tests.storage.killed_repair STORE POINTS``.

Copies the damaged store for each point, forks a process that repairs the copy and kills itself there, then opens
the copy as the next start would. A point is a call, by the modules of the repair, of a function written in C: every
step that touches a file is one. Prints a line of JSON for each point.
"""

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from talaria.core.errors import TalariaError
from talaria.storage.sqlite import rebuild, recovery, salvage
from talaria.storage.sqlite.open import open_sqlite

_FILES = {module.__file__ for module in (recovery, rebuild, salvage)} | {shutil.__file__}


def main(store: Path, points: int) -> None:
    """Count the calls of a complete repair, then kill it at this many of them, and at all of its last 40."""
    total = repaired_in_fork(copied(store), kill_at=0)
    step = max(1, total // points)
    for point in sorted({*range(1, total + 1, step), *range(max(1, total - 40), total + 1)}):
        copy = copied(store)
        repaired_in_fork(copy, kill_at=point)
        sys.stdout.write(json.dumps({"point": point, **after(copy)}) + "\n")


def copied(store: Path) -> Path:
    """Return a copy of the store in an empty folder."""
    folder = store.parent / "killed"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    for file in store.parent.glob(f"{store.name}*"):
        shutil.copyfile(file, folder / file.name)
    return folder / store.name


def repaired_in_fork(store: Path, kill_at: int) -> int:
    """Repair a store in a child process; return how many calls it made, or 0 if it was killed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        calls = Calls(kill_at)
        sys.setprofile(calls)
        recovery.recover(store)
        sys.setprofile(None)
        os.write(writer, str(calls.count).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    answer = os.read(reader, 100)
    os.close(reader)
    return int(answer or b"0")


class Calls:
    """Counts calls of the repair and ends the process, like ``kill -9``, at one of them."""

    def __init__(self, kill_at: int) -> None:
        self.count = 0
        self._kill_at = kill_at

    def __call__(self, frame: FrameType, event: str, function: object) -> None:
        if event == "c_call" and frame.f_code.co_filename in _FILES:
            self.count += 1
            if self.count == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)


def after(store: Path) -> dict[str, object]:
    """Return the messages that the next start finds, and the files left next to the store."""
    is_there = store.stat().st_size > 0
    try:
        open_sqlite(store).close()
    except TalariaError:
        recovery.recover(store)
    found = recovery.find_damage(store)
    if found:
        recovery.recover(store)
    return {"is_there": is_there, "messages": count(store), "left": sorted(names(store))}


def count(store: Path) -> int:
    database = open_sqlite(store)
    try:
        return len(list(database.read(lambda tx: list(tx.archive.rows("messages")))))
    finally:
        database.close()


def names(store: Path) -> Iterator[str]:
    for file in store.parent.iterdir():
        yield file.name.removeprefix(store.name).split("-")[0]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

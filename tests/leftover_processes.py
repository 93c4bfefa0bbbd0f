"""End processes that tests leave running, also if the whole run is killed.

As a program, it reads marks from its input, one per line, and ends all processes with one of them when its input ends.
It imports nothing of Talaria: ``python -I leftover_processes.py``.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import uuid4

RUN_VARIABLE = "TALARIA_TEST_RUN"
_PATIENCE = 5.0  # seconds for processes that are about to end by themselves


class LeftoverProcesses:
    """The processes of this run: all whose command, environment or folder has the run's name or temporary folder."""

    def __init__(self, temporary: Path) -> None:
        self._marks = [f"talaria-{uuid4().hex[:12]}", f"{temporary}/"]
        self._watcher = subprocess.Popen(
            [sys.executable, "-I", __file__], stdin=subprocess.PIPE, text=True, start_new_session=True
        )
        assert self._watcher.stdin is not None
        self._watcher.stdin.write("\n".join(self._marks))
        self._watcher.stdin.flush()
        os.environ[RUN_VARIABLE] = self._marks[0]  # noqa: TID251 (workers of this run inherit it, not the watcher)

    def close(self) -> list[str]:
        """End the remaining processes, and return their commands."""
        found = _find(self._marks)
        deadline = time.monotonic() + _PATIENCE
        while found and time.monotonic() < deadline:
            time.sleep(0.1)  # real time: other programs are about to end
            found = _find(self._marks)
        _kill(found)
        self._watcher.communicate()
        return list(found.values())


def _find(marks: list[str]) -> dict[int, str]:
    """Return the processes with a mark, except this one and its ancestors, by their numbers; none without /proc.

    Each is described by its test and its command.
    """
    if not Path("/proc/self/stat").exists():
        return {}
    spared, pid = set[int](), os.getpid()
    while pid > 1:
        spared.add(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) not in spared:
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes()
                folder = os.fsencode((entry / "cwd").readlink())
                facts = b"\0".join((command, (entry / "environ").read_bytes(), folder + b"/"))
                if any(os.fsencode(mark) in facts for mark in marks):
                    line = command.replace(b"\0", b" ").decode(errors="replace")
                    found[int(entry.name)] = f"{_find_test(facts, marks)}: {line}"
    return found


def _find_test(facts: bytes, marks: list[str]) -> str:
    """Return the test that started a process: by its environment, else by the temporary folder that it names."""
    text = facts.decode(errors="replace")
    named = re.search(r"(?:^|\0)PYTEST_CURRENT_TEST=([^\0]+?) \(\w+\)(?:\0|$)", text)
    folders = [re.search(rf"{re.escape(mark)}[^\0:]+", text) for mark in marks if mark.endswith("/")]
    return named[1] if named else next((found[0] for found in folders if found), "an unknown test")


def _kill(found: dict[int, str]) -> None:
    for pid in found:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def main() -> None:
    """Wait for the end of the run."""
    marks = sys.stdin.read().splitlines()
    while marks and (found := _find(marks)):
        _kill(found)
        time.sleep(0.1)  # real time: a process may have started another one


if __name__ == "__main__":
    main()

"""Several processes that start on the same word."""

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from tests.storage.engines import Place

ROOT = Path(__file__).parent.parent.parent


class Worker:
    """A process of `tests.storage.store_process`, ready to start."""

    def __init__(self, running: subprocess.Popen[str]) -> None:
        self._running = running
        assert self.hear() == "ready"

    def start(self) -> None:
        """Say the word."""
        self._input.write("\n")
        self._input.flush()

    def hear(self) -> Any:
        """Return the next answer, or ``None`` when it has ended."""
        assert self._running.stdout is not None
        line = self._running.stdout.readline()
        return json.loads(line) if line.endswith("\n") else None

    def kill(self) -> None:
        """End it without any warning."""
        self._running.kill()

    @property
    def _input(self) -> IO[str]:
        assert self._running.stdin is not None
        return self._running.stdin


@contextmanager
def crowd(size: int, task: str, place: Place, *words: str, within: Sequence[str] = ()) -> Iterator[list[Worker]]:
    """Run so many processes on a task, ``within`` another program if need be, and yield them when all are ready."""
    command = [*within, sys.executable, "-m", "tests.storage.store_process", task, *place.words, *words]
    with ExitStack() as stack:
        running = [stack.enter_context(_running(command)) for _ in range(size)]
        yield [Worker(one) for one in running]


@contextmanager
def _running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def answers(workers: list[Worker]) -> list[Any]:
    """Start everybody at once and return the first answer of each."""
    for worker in workers:
        worker.start()
    return [worker.hear() for worker in workers]

"""Several processes that start at the same signal."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from tests.app import warm_program
from tests.storage.engines import StoreLocation

ROOT = Path(__file__).parent.parent.parent
MODULE = "tests.storage.store_process"


class Worker:
    """A process of `tests.storage.store_process`, ready to start."""

    def __init__(self, pid: int, sent: IO[str], out: IO[str]) -> None:
        self._pid = pid
        self._input = sent
        self._output = out
        assert self.read_answer() == "ready"

    def start(self) -> None:
        """Let the process start its task."""
        self._input.write("\n")
        self._input.flush()

    def read_answer(self) -> Any:
        """Return the next answer, or ``None`` when the process has ended."""
        line = self._output.readline()
        return json.loads(line) if line.endswith("\n") else None

    def kill(self) -> None:
        """Kill the process without warning."""
        os.kill(self._pid, signal.SIGKILL)


@contextmanager
def start_workers(
    size: int, task: str, store_location: StoreLocation, *arguments: str, within: Sequence[str] = ()
) -> Iterator[list[Worker]]:
    """Run ``size`` processes on a task, ``within`` another program if given, and yield them when all are ready."""
    arguments = (task, *store_location.arguments, *arguments)
    with ExitStack() as stack:
        dialogues = [
            _start_within(within, *arguments) if within else warm_program.dialogue(MODULE, *arguments)
            for _ in range(size)
        ]
        started = [stack.enter_context(one) for one in dialogues]
        yield [Worker(*one) for one in started]


@contextmanager
def _start_within(within: Sequence[str], *arguments: str) -> Iterator[tuple[int, IO[str], IO[str]]]:
    command = [*within, sys.executable, "-m", MODULE, *arguments]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.pid, process.stdin, process.stdout
        finally:
            process.kill()


def first_answers(workers: list[Worker]) -> list[Any]:
    """Start all workers at once and return the first answer of each."""
    for worker in workers:
        worker.start()
    return [worker.read_answer() for worker in workers]

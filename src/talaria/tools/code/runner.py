"""The program in the child process: runs the code, with ``tools`` as functions. Needs only Python.

Standard input has the code and the answers, standard error takes the calls; the code's output is on standard output.
"""

import json
import linecache
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, TextIO

_NAME = "<code>"


class ToolFailed(Exception):
    """A tool failed; the message says why."""


class Tools:
    """Every tool as a function with named arguments that returns its text."""

    ToolFailed = ToolFailed

    def __init__(self, answers: "queue.SimpleQueue[str]", calls: TextIO) -> None:
        self._answers = answers
        self._calls = calls
        self._turn = threading.Lock()

    def __getattr__(self, name: str) -> Callable[..., str]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(**arguments: Any) -> str:
            return self._ask({"name": name, "arguments": arguments})

        return call

    def _ask(self, request: dict[str, Any]) -> str:
        with self._turn:
            self._calls.write(json.dumps(request) + "\n")
            self._calls.flush()
            answer = json.loads(self._answers.get())
        if answer["failed"]:
            raise ToolFailed(answer["text"])
        return str(answer["text"])

    def _read_code(self) -> str:
        return str(json.loads(self._answers.get())["code"])


def main() -> None:
    """Run the code received first; its output and its traceback are printed."""
    calls = open(os.dup(2), "w", encoding="utf-8", newline="\n")  # noqa: PTH123, SIM115 - for the life of the process
    os.dup2(1, 2)
    answers = _read_answers()
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False)  # noqa: SIM115 - for the life of the process
    tools = Tools(answers, calls)
    code = tools._read_code()  # noqa: SLF001 - the model's code sees no name that is not a tool
    sys.modules["tools"] = tools  # type: ignore[assignment]
    sys.argv = [_NAME]
    sys.path.insert(0, str(os.getcwd()))  # noqa: PTH109 - as if the code were a file there
    sys.excepthook = _show
    linecache.cache[_NAME] = (len(code), None, code.splitlines(keepends=True), _NAME)
    exec(compile(code, _NAME, "exec"), {"__name__": "__main__", "tools": tools})  # noqa: S102 - its purpose


def _read_answers() -> "queue.SimpleQueue[str]":
    """Read lines from standard input; at its end, end the whole process group: only the agent holds the other end."""
    stream = open(os.dup(0), encoding="utf-8", newline="\n")  # noqa: PTH123, SIM115 - for the life of the process
    answers: queue.SimpleQueue[str] = queue.SimpleQueue()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def read() -> None:
        for line in stream:
            answers.put(line)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    threading.Thread(target=read, daemon=True).start()
    return answers


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    while trace is not None and trace.tb_frame.f_code.co_filename == main.__code__.co_filename:
        trace = trace.tb_next
    sys.stdout.flush()
    traceback.print_exception(kind, error, trace)


if __name__ == "__main__":
    main()

"""The program in the child process: runs the code, with ``tools`` calling back through a socket. Needs only Python."""

import json
import linecache
import os
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any

_NAME = "<code>"


class ToolFailed(Exception):
    """A tool failed; the message says why."""


class Tools:
    """Every tool as a function with named arguments that returns its text."""

    ToolFailed = ToolFailed

    def __init__(self, connection: socket.socket) -> None:
        self._stream = connection.makefile("rw", encoding="utf-8", newline="\n")
        self._turn = threading.Lock()

    def __getattr__(self, name: str) -> Callable[..., str]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(**arguments: Any) -> str:
            return self._ask({"name": name, "arguments": arguments})

        return call

    def _ask(self, request: dict[str, Any]) -> str:
        with self._turn:
            self._stream.write(json.dumps(request) + "\n")
            self._stream.flush()
            answer = json.loads(self._stream.readline())
        if answer["failed"]:
            raise ToolFailed(answer["text"])
        return str(answer["text"])

    def _code(self) -> str:
        return str(json.loads(self._stream.readline())["code"])


def main(descriptor: int) -> None:
    """Run the code received first through the socket; its output and its traceback are printed."""
    os.dup2(1, 2)
    _die_with_parent()
    sys.stdout = open(1, "w", encoding="utf-8", errors="replace", buffering=1, closefd=False)  # noqa: SIM115 - for the life of the process
    tools = Tools(socket.socket(fileno=descriptor))
    code = tools._code()  # noqa: SLF001 - the model's code sees no name that is not a tool
    sys.modules["tools"] = tools  # type: ignore[assignment]
    sys.argv = [_NAME]
    sys.path.insert(0, str(os.getcwd()))  # noqa: PTH109 - as if the code were a file there
    sys.excepthook = _show
    linecache.cache[_NAME] = (len(code), None, code.splitlines(keepends=True), _NAME)
    exec(compile(code, _NAME, "exec"), {"__name__": "__main__", "tools": tools})  # noqa: S102 - its purpose


def _die_with_parent() -> None:
    """End the whole process group when standard input closes: only the agent holds its other end."""
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def watch() -> None:
        os.read(lifeline, 1)
        os.killpg(os.getpgid(0), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    sys.stdout.flush()
    traceback.print_exception(kind, error, trace)


if __name__ == "__main__":
    main(int(sys.argv[1]))

"""Run the installed `talaria` as a person would: with pipes, or on a terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.app import warm_program

from talaria.settings.environment import process_environment

TALARIA = str(Path(sys.executable).parent / "talaria")


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str = ""


@dataclass(frozen=True)
class Program:
    """Talaria with a separate home, isolated from the environment that the tests run in."""

    home: Path

    def environment(self, **more: str) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{process_environment()['PATH']}"
        return {"PATH": path, "HOME": str(self.home), "TALARIA_HOME": str(self.home), "TERM": "xterm", **more}

    def run(self, *arguments: str, env: Mapping[str, str] | None = None) -> Outcome:
        """Run it without a terminal, forked from a process that has imported it.

        With variables for the interpreter, which reads them when it starts, the installed program is started.
        """
        environment = self.environment(**env or {})
        if not any(name.startswith("PYTHON") for name in environment):
            return Outcome(*warm_program.run(arguments, env=environment))
        done = subprocess.run(
            [TALARIA, *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def run_on_terminal(self, *arguments: str, typed: str = "", env: Mapping[str, str] | None = None) -> Outcome:
        """Return the exit code and all output of the terminal."""
        with terminal_pair() as (keyboard, screen):
            os.write(keyboard, typed.encode())
            terminal = os.ttyname(screen)
            code, shown = warm_program.run_on_terminal(arguments, self.environment(**env or {}), terminal, keyboard)
            os.close(screen)
            return Outcome(code, shown.decode().replace("\r\n", "\n"))


@contextmanager
def terminal_pair(*, columns: int = 80) -> Iterator[tuple[int, int]]:
    """Yield the two ends of a terminal: the person's and the program's. The program's may be closed early."""
    person, program = pty.openpty()
    fcntl.ioctl(program, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        yield person, program
    finally:
        os.close(person)


def read_all(descriptor: int) -> str:
    """Return the output of a terminal until its last program exits, with plain line ends."""
    pieces: list[bytes] = []
    while True:
        try:
            piece = os.read(descriptor, 65536)
        except OSError:  # how Linux reports that the other end is closed
            piece = b""
        if not piece:
            return b"".join(pieces).decode().replace("\r\n", "\n")
        pieces.append(piece)

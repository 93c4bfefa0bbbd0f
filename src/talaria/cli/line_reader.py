"""Lines from a keyboard without an editor, for dumb terminals, screen readers and single questions."""

import asyncio
import os
import sys
import termios
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from select import select

from talaria.cli.approval import decision_of, decision_record, heading
from talaria.cli.showing import diff_lines
from talaria.cli.terminal import Terminal
from talaria.core.errors import Refused
from talaria.core.events import ApprovalAsked

APPROVAL = "y (once), s (for this conversation), a (always) or n (no), then Enter: "
NO_ANSWER = "That is not an answer to the question above. It is sent as a message after this turn."
_CHUNK = 4096
_LOCAL_FLAGS = 3


class LineReader:
    """Asks below what was printed, and reads what is typed; implements `TerminalAsks`.

    What was typed before an approval question was shown is no answer to it: whole lines are returned by `line` later.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._turn = asyncio.Lock()
        self._ahead: deque[str] = deque()

    async def line(self, prompt: str) -> str | None:
        """Return what is typed, or ``None`` at the end of it."""
        async with self._turn:
            self._terminal.prompt(prompt)
            if self._ahead:
                line = self._ahead.popleft()
                self._terminal.note(line)
                return line
            return await self._typed()

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        """List the choices and return which number was typed, or the only one that begins with what was typed."""
        listed = "\n".join(f"{number}. {choice}" for number, choice in enumerate(choices, 1))
        self._terminal.note(f"{self._terminal.styled(question, 'bold')}\n{listed}")
        typed = (await self.line(f"1 to {len(choices)}, or Enter for none: ") or "").lower()
        if typed.isdecimal():
            return int(typed) - 1 if 0 < int(typed) <= len(choices) else None
        fitting = [place for place, choice in enumerate(choices) if typed and choice.lower().startswith(typed)]
        return fitting[0] if len(fitting) == 1 else None

    async def ask(self, question: str) -> str:
        """Return what the person types as the answer; raises `Refused` at the end of the input."""
        self._terminal.note(self._terminal.styled(question, "bold"))
        typed = await self.line("Your answer: ")
        if typed is None:
            raise Refused("There was no answer: the input has ended.")
        return typed

    async def approve(self, asked: ApprovalAsked) -> str:
        """Show exactly what would happen, and return the decision; an empty line and the end of the input refuse."""
        async with self._turn:
            self.show_approval(asked)
            self._terminal.prompt(APPROVAL)
            while typed := await self._typed():
                decision = decision_of(typed)
                if decision is not None:
                    self.show_decision(decision)
                    return decision
                self._ahead.append(typed)
                self._terminal.note(NO_ANSWER)
                self._terminal.prompt(APPROVAL)
        return "no"

    async def wait_for_attention(self) -> None:
        """Return at once: what was typed before is not known here."""

    def show_approval(self, asked: ApprovalAsked) -> None:
        """Print an approval question; what was typed before is set aside."""
        terminal = self._terminal
        terminal.note(terminal.styled(heading(asked), "bold"))
        for line in asked.summary.split("\n"):
            terminal.note(f"  {line}")
        for line in diff_lines(asked.diff, terminal) if asked.diff else ():
            terminal.note(line)
        terminal.note(f"Reason: {asked.reason}")
        self._set_typed_aside()

    def show_decision(self, decision: str) -> None:
        """Print what was decided; a refusal is reported by the call that was refused."""
        record = decision_record(decision)
        if record:
            self._terminal.note(self._terminal.styled(f"✓ {record}", "green"))

    def _set_typed_aside(self) -> None:
        *lines, rest = _typed_ahead().split("\n")
        self._ahead += [line.strip() for line in lines if line.strip()]
        if rest.strip():
            self._terminal.note(f"What you had begun to type was set aside: {rest.strip()}")

    async def _typed(self) -> str | None:
        readable = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin, readable.set)  # not in a thread: that could not be interrupted
        try:
            # What woke us may have been set aside since, and reading would block.
            while not select([sys.stdin], [], [], 0)[0]:
                readable.clear()
                await readable.wait()
        finally:
            loop.remove_reader(sys.stdin)
        typed = sys.stdin.readline()
        return typed.strip() if typed else None


def _typed_ahead() -> str:
    """Return what was typed and not read yet, a line without its end included; nothing where that is not known."""
    try:
        with _unbuffered(sys.stdin.fileno()) as descriptor:
            pieces = list(iter(lambda: _available(descriptor), b""))
    except (termios.error, OSError):
        return ""
    return b"".join(pieces).decode("utf-8", "replace").replace("\r", "\n")


@contextmanager
def _unbuffered(descriptor: int) -> Iterator[int]:
    """Let the terminal hand out characters before their line has ended."""
    usual = termios.tcgetattr(descriptor)
    changed = termios.tcgetattr(descriptor)
    changed[_LOCAL_FLAGS] &= ~termios.ICANON
    changed[-1][termios.VMIN] = changed[-1][termios.VTIME] = 0
    termios.tcsetattr(descriptor, termios.TCSANOW, changed)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, usual)


def _available(descriptor: int) -> bytes:
    return os.read(descriptor, _CHUNK)

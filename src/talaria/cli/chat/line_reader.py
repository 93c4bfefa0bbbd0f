"""Line input without an editor, for dumb terminals, screen readers and single questions."""

import asyncio
import os
import sys
import termios
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from select import select

from talaria.cli.chat.approval import confirmation_of, format_approval_heading, format_decision, parse_decision
from talaria.cli.chat.event_printer import format_diff_lines
from talaria.cli.terminal import Terminal
from talaria.core.errors import Refused
from talaria.core.events import ApprovalAsked
from talaria.runtime.questions import PLAN

_APPROVAL_PROMPT = "y (once), s (for this conversation), a (always) or n (no), then Enter: "
_PLAN_PROMPT = "y (carry it out), n (keep planning) or n and what to change, then Enter: "
CONFIRMATION = "y (yes) or n (no), then Enter: "
NO_ANSWER = "That doesn't answer the question above. It will be sent as a message later."
_CHUNK = 4096
_LOCAL_FLAGS = 3


def format_approval_prompt(request: ApprovalAsked) -> str:
    """Return the possible answers to an approval question."""
    return _PLAN_PROMPT if request.tool == PLAN else _APPROVAL_PROMPT


class LineReader:
    """Line-based prompt that implements `TerminalAsks`.

    Text typed before an approval question was shown does not answer it: `read_line` returns complete lines later.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._lock = asyncio.Lock()
        self._typed_lines: deque[str] = deque()

    async def read_line(self, prompt: str) -> str | None:
        """Return the typed line, or ``None`` at the end of the input."""
        async with self._lock:
            self._terminal.prompt(prompt)
            if self._typed_lines:
                line = self._typed_lines.popleft()
                self._terminal.note(line)
                return line
            return await self._read_line()

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        """List the choices and return the index of the typed number or unique prefix, or ``None``."""
        listed = "\n".join(f"{number}. {choice}" for number, choice in enumerate(choices, 1))
        self._terminal.note(f"{self._terminal.style(question, 'bold')}\n{listed}")
        typed = (await self.read_line(f"1 to {len(choices)}, or Enter to cancel: ") or "").lower()
        if typed.isdecimal():
            return int(typed) - 1 if 0 < int(typed) <= len(choices) else None
        matches = [index for index, choice in enumerate(choices) if typed and choice.lower().startswith(typed)]
        return matches[0] if len(matches) == 1 else None

    async def ask(self, question: str) -> str:
        """Return the typed answer; raises `Refused` at the end of the input."""
        self._terminal.note(self._terminal.style(question, "bold"))
        typed = await self.read_line("Your answer: ")
        if typed is None:
            raise Refused("No answer: the input has ended.")
        return typed

    async def approve(self, request: ApprovalAsked) -> str:
        """Show the exact action and return the decision; an empty line or the end of input refuses."""
        async with self._lock:
            self.show_approval(request)
            decision = await self._read_decision(format_approval_prompt(request), parse_decision)
            self.show_decision(request, decision)
            return decision

    async def confirm(self, question: str) -> bool:
        """Return whether the user answered yes; an empty line or the end of input means no."""
        async with self._lock:
            self._terminal.note(self._terminal.style(question, "bold"))
            self._save_typed_input()
            return await self._read_decision(CONFIRMATION, confirmation_of) == "yes"

    async def _read_decision(self, prompt: str, decide: Callable[[str], str | None]) -> str:
        self._terminal.prompt(prompt)
        while typed := await self._read_line():
            decision = decide(typed)
            if decision is not None:
                return decision
            self._typed_lines.append(typed)
            self._terminal.note(NO_ANSWER)
            self._terminal.prompt(prompt)
        return "no"

    async def wait_for_attention(self) -> None:
        """Return at once: typing cannot be detected here."""

    def show_approval(self, request: ApprovalAsked) -> None:
        """Print an approval question; text typed before it is set aside."""
        terminal = self._terminal
        terminal.note(terminal.style(format_approval_heading(request), "bold"))
        for line in request.summary.split("\n"):
            terminal.note(f"  {line}")
        for line in format_diff_lines(request.diff, terminal) if request.diff else ():
            terminal.note(line)
        terminal.note(f"Reason: {request.reason}")
        self._save_typed_input()

    def show_decision(self, request: ApprovalAsked, decision: str) -> None:
        """Print the decision; a refusal is reported by the refused call."""
        record = format_decision(request, decision)
        if record:
            self._terminal.note(self._terminal.style(f"✓ {record}", "green"))

    def _save_typed_input(self) -> None:
        *lines, rest = _read_typed_ahead().split("\n")
        self._typed_lines += [line.strip() for line in lines if line.strip()]
        if rest.strip():
            self._terminal.note(f"Your unfinished text was set aside: {rest.strip()}")

    async def _read_line(self) -> str | None:
        readable = asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_reader(sys.stdin, readable.set)  # not in a thread, which could not be interrupted
        try:
            # The input that woke this task may have been set aside, and reading would block.
            while not select([sys.stdin], [], [], 0)[0]:
                readable.clear()
                await readable.wait()
        finally:
            loop.remove_reader(sys.stdin)
        typed = sys.stdin.readline()
        return typed.strip() if typed else None


def _read_typed_ahead() -> str:
    """Return typed text that was not read yet, including an unfinished line; empty if unknown."""
    try:
        with _unbuffered(sys.stdin.fileno()) as descriptor:
            pieces = list(iter(lambda: _read_available(descriptor), b""))
    except (termios.error, OSError):
        return ""
    return b"".join(pieces).decode("utf-8", "replace").replace("\r", "\n")


@contextmanager
def _unbuffered(descriptor: int) -> Iterator[int]:
    """Switch the terminal to deliver characters before the end of a line."""
    original = termios.tcgetattr(descriptor)
    changed = termios.tcgetattr(descriptor)
    changed[_LOCAL_FLAGS] &= ~termios.ICANON
    changed[-1][termios.VMIN] = changed[-1][termios.VTIME] = 0
    termios.tcsetattr(descriptor, termios.TCSANOW, changed)
    try:
        yield descriptor
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, original)


def _read_available(descriptor: int) -> bytes:
    return os.read(descriptor, _CHUNK)

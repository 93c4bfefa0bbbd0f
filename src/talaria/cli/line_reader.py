"""Lines from a keyboard without an editor, for dumb terminals, screen readers and single questions."""

import asyncio
import sys
from collections.abc import Sequence

from talaria.cli.terminal import Terminal
from talaria.core.errors import Refused


class LineReader:
    """Asks below what was printed, and reads what is typed; implements `Asks`."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._turn = asyncio.Lock()

    async def line(self, prompt: str) -> str | None:
        """Return what is typed, or ``None`` at the end of it."""
        async with self._turn:
            self._terminal.prompt(prompt)
            readable = asyncio.Event()
            loop = asyncio.get_running_loop()
            loop.add_reader(sys.stdin, readable.set)  # not in a thread: that could not be interrupted
            try:
                await readable.wait()
            finally:
                loop.remove_reader(sys.stdin)
            typed = sys.stdin.readline()
        return typed.strip() if typed else None

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

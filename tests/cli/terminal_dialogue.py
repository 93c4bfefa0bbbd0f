"""Dialogue with `talaria` on its own terminal: wait for a question, then answer it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from tests.app import warm_program
from tests.app.program import TALARIA, Program

from talaria.testing.screen import Screen, open_screen


class Dialogue:
    """Questions and answers on a screen; it is so high that nothing scrolls away."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self._row = -1

    @property
    def text(self) -> str:
        """All text shown so far."""
        return self.screen.text

    async def wait_for_question(self, question: str) -> None:
        """Wait until the cursor is after this question, below the last answer."""
        await self.screen.wait_until(
            lambda: self.screen.cursor.row > self._row and self.screen.cursor_line.startswith(question),
            expected=f"the question {question!r}",
        )

    async def answer(self, question: str, answer: str = "") -> None:
        """Wait for the question and type the answer."""
        await self.wait_for_question(question)
        self._row = self.screen.cursor.row
        await self.screen.type(f"{answer}\n")

    async def press(self, question: str, key: str) -> None:
        """Wait for the question and press a key."""
        await self.wait_for_question(question)
        await self.screen.press(key)

    async def end(self) -> int:
        """Wait for the end of the program and return its exit code."""
        return await self.screen.exit_code()


@asynccontextmanager
async def dialogue(program: Program, *arguments: str, env: Mapping[str, str] | None = None) -> AsyncIterator[Dialogue]:
    """Run the program on a terminal of 100 columns and yield the dialogue with it."""
    environment = program.environment(**env or {})
    async with open_screen(
        [TALARIA, *arguments], env=environment, rows=400, cwd=program.home, spawn=warm_program.spawn
    ) as screen:
        yield Dialogue(screen)

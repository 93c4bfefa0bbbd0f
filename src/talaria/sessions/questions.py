"""Questions that a turn asks and somebody answers: by a click, a number, a command, or not at all."""

import asyncio
from collections.abc import Callable

from talaria.core.events import ApprovalAsked, QuestionAsked, TurnEvent
from talaria.core.ids import new_id

_PATIENCE = 300.0


class Questions:
    """The open questions of one conversation; implements `Person`."""

    def __init__(self, emit: Callable[[TurnEvent], None], *, patience: float = _PATIENCE) -> None:
        self._emit = emit
        self._patience = patience
        self._open: dict[str, asyncio.Future[str]] = {}

    async def ask(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Return the answer, or ``None`` when nobody answers in time."""
        return await self._wait(lambda number: QuestionAsked(number, question, choices))

    async def ask_approval(self, tool: str, summary: str, reason: str) -> str | None:
        """Return ``once``, ``session``, ``always`` or ``no``, or ``None`` when nobody answers in time."""
        return await self._wait(lambda number: ApprovalAsked(number, tool, summary, reason))

    def answer(self, question_id: str, text: str) -> bool:
        """Answer an open question; ``False`` when it is not open any more."""
        future = self._open.get(question_id)
        if future is None or future.done():
            return False
        future.set_result(text)
        return True

    @property
    def waiting(self) -> list[str]:
        """The ids of the open questions, oldest first."""
        return list(self._open)

    async def _wait(self, asked: Callable[[str], TurnEvent]) -> str | None:
        number = new_id()
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open[number] = future
        try:
            self._emit(asked(number))
            async with asyncio.timeout(self._patience):
                return await future
        except TimeoutError:
            return None
        finally:
            del self._open[number]

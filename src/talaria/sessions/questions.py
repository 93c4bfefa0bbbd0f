"""Questions that a turn asks and somebody answers: by a click, a number, a command, or not at all."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from msgspec import Struct

from talaria.core.events import ApprovalAsked, QuestionAsked, TurnEvent
from talaria.core.ids import new_id

_PATIENCE = 300.0


Asked = ApprovalAsked | QuestionAsked


class OpenQuestions(Protocol):
    """What a turn has asked, be it in this process or in another."""

    @property
    def approvals(self) -> list[ApprovalAsked]:
        """What waits for somebody to allow it, oldest first."""

    def answer(self, question_id: str, text: str) -> bool:
        """Answer an open question; ``False`` when it is not open any more."""


class _Open(Struct, frozen=True):
    asked: Asked
    answer: asyncio.Future[str]


class Questions:
    """The open questions of one conversation; implements `Person`."""

    def __init__(self, emit: Callable[[TurnEvent], None], *, patience: Callable[[], float] = lambda: _PATIENCE) -> None:
        self._emit = emit
        self._patience = patience
        self._open: dict[str, _Open] = {}

    async def ask(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Return the answer, or ``None`` when nobody answers in time."""
        return await self._wait(lambda number: QuestionAsked(number, question, choices))

    async def ask_approval(self, tool: str, summary: str, reason: str, diff: str = "") -> str | None:
        """Return ``once``, ``session``, ``always``, or why not, or ``None`` when nobody answers in time."""
        return await self._wait(lambda number: ApprovalAsked(number, tool, summary, reason, diff))

    def answer(self, question_id: str, text: str) -> bool:
        """Answer an open question; ``False`` when it is not open any more."""
        found = self._open.get(question_id)
        if found is None or found.answer.done():
            return False
        found.answer.set_result(text)
        return True

    async def closed(self, question_id: str) -> None:
        """Wait until a question is open no more: answered from anywhere, given up, or ended with its turn."""
        found = self._open.get(question_id)
        if found is not None:
            await asyncio.wait([found.answer])

    @property
    def waiting(self) -> list[str]:
        """The ids of the open questions, oldest first."""
        return list(self._open)

    @property
    def approvals(self) -> list[ApprovalAsked]:
        """What waits for somebody to allow it, oldest first."""
        unanswered = [one.asked for one in self._open.values() if not one.answer.done()]
        return [asked for asked in unanswered if isinstance(asked, ApprovalAsked)]

    async def _wait(self, asked: Callable[[str], Asked]) -> str | None:
        number = new_id()
        question = _Open(asked(number), asyncio.get_running_loop().create_future())
        self._open[number] = question
        try:
            self._emit(question.asked)
            async with asyncio.timeout(self._patience()):
                return await question.answer
        except TimeoutError:
            return None
        finally:
            del self._open[number]


class PassedOn(Questions):
    """The questions of a task that was handed on: whoever is asked ``there`` learns ``whose`` they are."""

    def __init__(self, there: Questions, whose: str) -> None:
        super().__init__(lambda event: None)
        self._there = there
        self._whose = whose

    async def ask(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Return the answer, or ``None`` when nobody answers in time."""
        return await self._there.ask(f"{self._whose}: {question}", choices)

    async def ask_approval(self, tool: str, summary: str, reason: str, diff: str = "") -> str | None:
        """Return what somebody says there."""
        return await self._there.ask_approval(tool, f"{self._whose}: {summary}", reason, diff)

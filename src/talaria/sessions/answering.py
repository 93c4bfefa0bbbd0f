"""Questions of a turn, put to a person where they are."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from talaria.core.events import ApprovalAsked, QuestionAsked

_APPROVALS = (
    ("once", "Yes, this once"),
    ("session", "Yes, for this conversation"),
    ("always", "Yes, always"),
    ("no", "No"),
)
_ANOTHER = "Something else: I type it"


class Asks(Protocol):
    """A place at which somebody can be asked."""

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        """Let the person choose, and return which; ``None`` when they do not."""

    async def ask(self, question: str) -> str:
        """Return what the person types as the answer."""


class Answers(Protocol):
    """What the answers to the questions of a turn are given to; the turn may run in another process."""

    def answer(self, question_id: str, text: str) -> bool:
        """Answer a question; ``False`` when it is known to be open no more."""

    async def closed(self, question_id: str) -> None:
        """Wait until a question is open no more."""


async def answer(event: ApprovalAsked | QuestionAsked, questions: Answers, place: Asks) -> None:
    """Ask the person, unless the question is closed before they answer."""
    asked = _ask_approval(event, place) if isinstance(event, ApprovalAsked) else ask_question(event, place)
    await settle(event.id, questions, asked)


async def settle(question_id: str, questions: Answers, asking: Coroutine[Any, Any, str]) -> None:
    """Answer a question with what ``asking`` returns; it is cancelled when the question is closed before."""
    async with asyncio.TaskGroup() as group:
        asked = group.create_task(asking)
        closing = group.create_task(questions.closed(question_id))
        await asyncio.wait([asked, closing], return_when=asyncio.FIRST_COMPLETED)
        if asked.done() and not asked.cancelled():
            questions.answer(question_id, asked.result())
        asked.cancel()
        closing.cancel()


async def _ask_approval(event: ApprovalAsked, place: Asks) -> str:
    asked = f"{event.tool} wants to do this: {event.summary}\n{event.reason}"
    chosen = await place.choose(asked, [words for _, words in _APPROVALS])
    return "no" if chosen is None else _APPROVALS[chosen][0]


async def ask_question(event: QuestionAsked, place: Asks) -> str:
    """Return the person's answer to a question of the agent."""
    if event.choices:
        chosen = await place.choose(event.question, [*event.choices, _ANOTHER])
        if chosen is None:
            return ""
        if chosen < len(event.choices):
            return event.choices[chosen]
    return await place.ask(event.question)

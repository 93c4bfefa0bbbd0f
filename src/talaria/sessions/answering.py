"""Questions of a turn, put to a person where they are."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

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
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(_asked(event, place))
        closing = group.create_task(questions.closed(event.id))
        await asyncio.wait([asking, closing], return_when=asyncio.FIRST_COMPLETED)
        if asking.done() and not asking.cancelled():
            questions.answer(event.id, asking.result())
        asking.cancel()
        closing.cancel()


async def _asked(event: ApprovalAsked | QuestionAsked, place: Asks) -> str:
    if isinstance(event, ApprovalAsked):
        asked = f"{event.tool} wants to do this: {event.summary}\n{event.reason}"
        chosen = await place.choose(asked, [words for _, words in _APPROVALS])
        return "no" if chosen is None else _APPROVALS[chosen][0]
    if event.choices:
        chosen = await place.choose(event.question, [*event.choices, _ANOTHER])
        if chosen is None:
            return ""
        if chosen < len(event.choices):
            return event.choices[chosen]
    return await place.ask(event.question)

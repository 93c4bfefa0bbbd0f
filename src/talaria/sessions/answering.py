"""Questions of a turn, put to a person where they are."""

import asyncio
import re
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

from talaria.core.events import ApprovalAsked, QuestionAsked
from talaria.core.harmless import harmless_json
from talaria.sessions.transcripts import fenced

_APPROVALS = (
    ("once", "Yes, this once"),
    ("session", "Yes, for this conversation"),
    ("always", "Yes, always"),
    ("no", "No"),
)
_ANOTHER = "Something else: I type it"
_COMMANDS = "terminal"
_SIGNS = re.compile(r"([\\`*_{}\[\]<>#|~!])")


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


async def answer(
    event: ApprovalAsked | QuestionAsked, questions: Answers, place: Asks, *, markdown: bool = False
) -> None:
    """Ask the person, unless the question is closed before they answer; ``markdown`` is for a place that renders it."""
    if isinstance(event, ApprovalAsked):
        await settle(event.id, questions, _ask_approval(event, place, markdown=markdown))
    else:
        await settle(event.id, questions, ask_question(event, place))


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


def approval_question(event: ApprovalAsked, *, markdown: bool = False) -> str:
    """Return the question with exactly what would run.

    Where Markdown is rendered, that stands in a block of code, so that nothing of it is left out or changed, and
    characters that reverse or hide text are shown as escapes.
    """
    lead = "Run this command?" if event.tool == _COMMANDS else f"Allow {event.tool}?"
    if not markdown:
        return f"{lead}\n{event.summary}\n{event.reason}"
    reason = _SIGNS.sub(r"\\\1", harmless_json(event.reason))
    return f"{lead}\n\n{fenced(harmless_json(event.summary))}\n\n{reason}"


async def _ask_approval(event: ApprovalAsked, place: Asks, *, markdown: bool) -> str:
    chosen = await place.choose(approval_question(event, markdown=markdown), [words for _, words in _APPROVALS])
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

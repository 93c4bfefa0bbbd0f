"""Approval questions in a terminal: their text, and which typed answers count."""

import re
from typing import Protocol

from talaria.core.events import ApprovalAsked, QuestionAsked
from talaria.sessions.answering import Answers, Asks, ask_question, settle

_DECISIONS = {
    "y": "once",
    "yes": "once",
    "s": "session",
    "session": "session",
    "a": "always",
    "always": "always",
    "n": "no",
    "no": "no",
}
_RECORDS = {"once": "approved once", "session": "approved for this conversation", "always": "approved always"}
_REFUSED_WITH_REASON = re.compile(r"(?:n|no)[\s,;:.]+(\S.*)", re.IGNORECASE | re.DOTALL)
_HEADINGS = {
    "terminal": "Run this command?",
    "execute_code": "Run this code?",
    "write_file": "Write this file?",
    "edit_file": "Change this file?",
}


class TerminalAsks(Asks, Protocol):
    """A terminal at which somebody can be asked."""

    async def approve(self, asked: ApprovalAsked) -> str:
        """Show exactly what would happen, and return the decision: ``once``, ``session``, ``always`` or why not."""

    async def wait_for_attention(self) -> None:
        """Wait until the person is not typing something else, where that can be known."""


async def answer_in_terminal(event: ApprovalAsked | QuestionAsked, questions: Answers, terminal: TerminalAsks) -> None:
    """Ask the person at a terminal, unless the question is closed before they answer."""
    asking = terminal.approve(event) if isinstance(event, ApprovalAsked) else _ask_question(event, terminal)
    await settle(event.id, questions, asking)


async def _ask_question(event: QuestionAsked, terminal: TerminalAsks) -> str:
    await terminal.wait_for_attention()
    return await ask_question(event, terminal)


def heading(asked: ApprovalAsked) -> str:
    """Return the question itself."""
    return _HEADINGS.get(asked.tool, f"Allow {asked.tool} to do this?")


def decision_of(typed: str) -> str | None:
    """Return the decision that a typed line stands for; ``None`` if it is no answer to an approval question.

    ``n`` may be followed by the reason, which the agent reads.
    """
    line = typed.strip()
    found = _REFUSED_WITH_REASON.fullmatch(line)
    if found is None:
        return _DECISIONS.get(line.lower())
    return "no" if found[1] in _RECORDS else found[1]


def decision_record(decision: str) -> str:
    """Return the line that an approval leaves; empty for a refusal, which the refused call reports itself."""
    return _RECORDS.get(decision, "")

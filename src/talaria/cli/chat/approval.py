"""Approval questions in a terminal: their text, and which typed answers count."""

import re
from typing import Protocol

from talaria.core.events import ApprovalAsked, QuestionAsked
from talaria.runtime.questions import PLAN, AnswerReceiver, Prompter, answer_with, ask_question

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
_CONFIRMATIONS = {"y": "yes", "yes": "yes", "n": "no", "no": "no"}
_DECISION_TEXTS = {"once": "approved once", "session": "approved for this conversation", "always": "approved always"}
_REFUSED_WITH_REASON = re.compile(r"(?:n|no)[\s,;:.]+(\S.*)", re.IGNORECASE | re.DOTALL)
_HEADINGS = {
    "terminal": "Run this command?",
    PLAN: "Carry out the plan?",
    "execute_code": "Run this code?",
    "write_file": "Write this file?",
    "edit_file": "Change this file?",
}


class TerminalAsks(Prompter, Protocol):
    """Terminal that can ask the user for approvals and answers."""

    async def approve(self, request: ApprovalAsked) -> str:
        """Show the exact action and return ``once``, ``session``, ``always`` or the reason for a refusal."""

    async def wait_for_attention(self) -> None:
        """Wait until the user is not typing anything else, where this can be detected."""


async def answer_in_terminal(
    event: ApprovalAsked | QuestionAsked, questions: AnswerReceiver, terminal: TerminalAsks
) -> None:
    """Ask the user in a terminal, unless the question is closed before they answer."""
    answer = terminal.approve(event) if isinstance(event, ApprovalAsked) else _ask_question(event, terminal)
    await answer_with(event.id, questions, answer)


async def _ask_question(event: QuestionAsked, terminal: TerminalAsks) -> str:
    await terminal.wait_for_attention()
    return await ask_question(event, terminal)


def format_approval_heading(request: ApprovalAsked) -> str:
    """Return the approval question."""
    return _HEADINGS.get(request.tool, f"Allow {request.tool} to do this?")


def confirmation_of(typed: str) -> str | None:
    """Return ``yes`` or ``no``; ``None`` if a typed line is neither."""
    return _CONFIRMATIONS.get(typed.strip().lower())


def parse_decision(typed: str) -> str | None:
    """Return the decision for a typed line; ``None`` if it does not answer the approval question.

    ``n`` may be followed by a reason for the agent.
    """
    line = typed.strip()
    found = _REFUSED_WITH_REASON.fullmatch(line)
    if found is None:
        return _DECISIONS.get(line.lower())
    return "no" if found[1] in _DECISION_TEXTS else found[1]


def format_decision(asked: ApprovalAsked, decision: str) -> str:
    """Return the line that records an approval; empty for a refusal, which the refused call reports."""
    record = _DECISION_TEXTS.get(decision, "")
    return "plan approved" if record and asked.tool == PLAN else record

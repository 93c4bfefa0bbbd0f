"""Typed answers that count as the decision about an approval."""

import pytest

from talaria.cli.chat.approval import format_decision, parse_decision
from talaria.cli.chat.line_reader import format_approval_prompt
from talaria.core.events import ApprovalAsked
from talaria.runtime.questions import PLAN


@pytest.mark.parametrize(
    ("typed", "decision"),
    [
        ("y", "once"),
        ("YES ", "once"),
        ("s", "session"),
        ("a", "always"),
        ("n", "no"),
        ("no", "no"),
        ("n use the trash", "use the trash"),
        ("no, use the trash", "use the trash"),
        ("no always", "no"),
        ("", None),
        ("1", None),
        (" 1 is good", None),
        ("yes please", None),
        ("also look at the docs", None),
        ("nothing", None),
    ],
)
def test_only_exact_answers_count_as_a_decision(typed: str, decision: str | None) -> None:
    assert parse_decision(typed) == decision


def test_approval_is_shown_and_refusal_is_shown_by_the_call() -> None:
    question = ApprovalAsked("1", "terminal", "make", "it asks")
    assert format_decision(question, "session") == "approved for this conversation"
    assert not format_decision(question, "use the trash")


def test_question_about_a_plan_offers_no_wider_approvals() -> None:
    question = ApprovalAsked("1", PLAN, "First step: write_file: a", "The agent wants to carry out its plan.")
    assert format_decision(question, "once") == "plan approved"
    assert "always" not in format_approval_prompt(question)
    assert "keep planning" in format_approval_prompt(question)

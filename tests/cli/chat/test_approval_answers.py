"""Which typed answers count as the decision about an approval."""

import pytest

from talaria.cli.chat.approval import format_decision, parse_decision


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
def test_only_exact_answers_decide(typed: str, decision: str | None) -> None:
    assert parse_decision(typed) == decision


def test_approvals_leave_a_record_and_refusals_are_left_to_the_call() -> None:
    assert format_decision("session") == "approved for this conversation"
    assert not format_decision("use the trash")

"""Which typed answers count as the decision about an approval."""

import pytest

from talaria.cli.approval import decision_of, decision_record


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
    assert decision_of(typed) == decision


def test_approvals_leave_a_record_and_refusals_are_left_to_the_call() -> None:
    assert decision_record("session") == "approved for this conversation"
    assert not decision_record("use the trash")

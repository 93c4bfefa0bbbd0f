"""Parsing of goals as people type them."""

import pytest

from talaria.core.errors import Refused
from talaria.goals.goal import Allowance, GoalContract
from talaria.goals.goal_manager import parse_budget, parse_goal

USUAL = Allowance(turns=20)


def test_goal_without_labels_is_its_full_text() -> None:
    request = parse_goal("  Make it fast.\nAnd small: very small.  ", USUAL)
    assert (request.goal, request.contract, request.allowance) == (
        "Make it fast.\nAnd small: very small.",
        GoalContract(),
        USUAL,
    )


def test_labelled_lines_become_the_contract() -> None:
    request = parse_goal(
        "Make the suite green\nVerify: make test\nconstraints: no new packages\nconstraint: keep names\n"
        "scope: src only\nStop when: it needs a key\nbudget: 5 turns",
        USUAL,
    )
    assert request.goal == "Make the suite green"
    assert request.contract == GoalContract("make test", "no new packages\nkeep names", "src only", "it needs a key")
    assert request.allowance == Allowance(turns=5)


def test_bar_separates_only_before_a_label() -> None:
    request = parse_goal("Count | sort | verify: cat a | wc -l | scope: a", USUAL)
    assert (request.goal, request.contract) == ("Count | sort", GoalContract(verify="cat a | wc -l", scope="a"))


def test_two_verify_commands_are_joined_with_and() -> None:
    assert parse_goal("g\nverify: a\nverify: b", USUAL).contract.verify == "a && b"


@pytest.mark.parametrize("text", ["", "   \n ", "verify: make", "budget: 3 turns | scope: all"])
def test_goal_without_text_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="Say what the goal is"):
        parse_goal(text, USUAL)


def test_goal_over_the_length_limit_is_refused() -> None:
    with pytest.raises(Refused, match="20,000"):
        parse_goal("x" * 20_001, USUAL)


@pytest.mark.parametrize(
    ("text", "allowance"),
    [
        ("30 turns, 200k tokens, $2, 2h", Allowance(30, 200_000, 2_000_000, 7_200)),
        ("1 turn", Allowance(1)),
        ("1.5M tokens and 90 min", Allowance(20, 1_500_000, 0, 5_400)),
        ("2.50$; 1 day", Allowance(20, 0, 2_500_000, 86_400)),
        ("3 dollars", Allowance(20, 0, 3_000_000)),
        ("200,000 tokens", Allowance(20, 200_000)),
        ("45m", Allowance(20, 0, 0, 2_700)),
        ("45 minutes", Allowance(20, 0, 0, 2_700)),
        ("30s", Allowance(20, 0, 0, 30)),
        ("", USUAL),
    ],
)
def test_budget_in_natural_notation_is_parsed(text: str, allowance: Allowance) -> None:
    assert parse_budget(text, USUAL) == allowance


@pytest.mark.parametrize("text", ["lots", "5 apples", "$2 turns", "turns", "-3 turns", "5", "0 turns", "$0"])
def test_unreadable_budget_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="don't understand the budget"):
        parse_budget(text, USUAL)

"""Every command and action: misspellings get a suggestion, and a command without an action lists or shows."""

from collections.abc import Sequence

import pytest

from talaria.app.command_line.dispatch import build_parser
from talaria.app.command_line.spec import read_command_line
from talaria.app.command_line.subcommands import SUBCOMMANDS, find_subcommand
from talaria.cli.parser import USAGE_ERROR
from talaria.cli.parser_tree import CommandSpec

COMMANDS = [
    spec for spec in read_command_line().walk() if len(spec.path) > 1 and find_subcommand(spec.path[1]) is not None
]
WITH_ACTIONS = [spec for spec in COMMANDS if spec.actions]


def name(spec: CommandSpec) -> str:
    return " ".join(spec.path[1:])


def refusal(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the error message for a wrong command line."""
    subcommand = find_subcommand(arguments[0])
    assert subcommand is not None
    with pytest.raises(SystemExit) as exited:
        build_parser(subcommand).parse_args(list(arguments[1:]))
    assert exited.value.code == USAGE_ERROR
    return capsys.readouterr().err


def misspell(flag: str) -> str:
    """Return an option with one letter doubled."""
    return f"{flag[:4]}{flag[3]}{flag[4:]}"


def test_command_tree_contains_every_subcommand() -> None:
    assert {spec.path[1] for spec in COMMANDS} == {subcommand.name for subcommand in SUBCOMMANDS}


@pytest.mark.parametrize("spec", COMMANDS, ids=name)
def test_misspelt_option_is_answered_with_a_suggestion(spec: CommandSpec, capsys: pytest.CaptureFixture[str]) -> None:
    for option in spec.options:
        flag = next((flag for flag in option.flags if flag.startswith("--") and len(flag) > 5), None)
        if flag is None:
            continue
        error = refusal([*spec.path[1:], misspell(flag)], capsys)
        assert "Did you mean `--" in error, (flag, error)
        assert error.rstrip().endswith("`."), error


@pytest.mark.parametrize("spec", WITH_ACTIONS, ids=name)
def test_misspelt_action_is_answered_with_a_suggestion(spec: CommandSpec, capsys: pytest.CaptureFixture[str]) -> None:
    for action in spec.actions:
        error = refusal([*spec.path[1:], f"{action.path[-1]}x"], capsys)
        assert f"Did you mean `{action.path[-1]}`?" in error


@pytest.mark.parametrize("spec", WITH_ACTIONS, ids=name)
def test_command_without_an_action_lists_or_shows(spec: CommandSpec) -> None:
    subcommand = find_subcommand(spec.path[1])
    assert subcommand is not None
    chosen = build_parser(subcommand).parse_args([])
    assert getattr(chosen, "action", None) in {None, "list", "show", "status", "open"}


def test_unknown_option_without_a_similar_one_gets_no_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    error = refusal(["usage", "--zzzzzzzz"], capsys)
    assert "unrecognized arguments: --zzzzzzzz" in error
    assert "Did you mean" not in error

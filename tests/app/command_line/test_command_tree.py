"""Every command and action: misspellings get a suggestion, and a command without its action shows something."""

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


def refusal(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return what a wrong command line is answered with."""
    subcommand = find_subcommand(words[0])
    assert subcommand is not None
    with pytest.raises(SystemExit) as left:
        build_parser(subcommand).parse_args(list(words[1:]))
    assert left.value.code == USAGE_ERROR
    return capsys.readouterr().err


def misspell(flag: str) -> str:
    """Return an option with one letter doubled."""
    return f"{flag[:4]}{flag[3]}{flag[4:]}"


def test_the_tree_is_complete() -> None:
    assert {spec.path[1] for spec in COMMANDS} == {subcommand.name for subcommand in SUBCOMMANDS}


@pytest.mark.parametrize("spec", COMMANDS, ids=name)
def test_a_misspelt_option_is_answered_with_the_right_one(
    spec: CommandSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    for option in spec.options:
        flag = next((flag for flag in option.flags if flag.startswith("--") and len(flag) > 5), None)
        if flag is None:
            continue
        told = refusal([*spec.path[1:], misspell(flag)], capsys)
        assert "Did you mean `--" in told, (flag, told)
        assert told.rstrip().endswith("`."), told


@pytest.mark.parametrize("spec", WITH_ACTIONS, ids=name)
def test_a_misspelt_action_is_answered_with_the_right_one(
    spec: CommandSpec, capsys: pytest.CaptureFixture[str]
) -> None:
    for action in spec.actions:
        told = refusal([*spec.path[1:], f"{action.path[-1]}x"], capsys)
        assert f"Did you mean `{action.path[-1]}`?" in told


@pytest.mark.parametrize("spec", WITH_ACTIONS, ids=name)
def test_a_command_without_its_action_lists_or_shows_something(spec: CommandSpec) -> None:
    subcommand = find_subcommand(spec.path[1])
    assert subcommand is not None
    chosen = build_parser(subcommand).parse_args([])
    assert getattr(chosen, "action", None) in {None, "list", "show", "status", "open"}


def test_an_unknown_option_without_a_similar_one_is_only_named(capsys: pytest.CaptureFixture[str]) -> None:
    told = refusal(["usage", "--zzzzzzzz"], capsys)
    assert "unrecognized arguments: --zzzzzzzz" in told
    assert "Did you mean" not in told

"""The registry and its views: what can be typed where."""

import pytest

from talaria.commands.registry import (
    COMMANDS,
    COMMANDS_BY_CATEGORY,
    GATEWAY_KNOWN_COMMANDS,
    REGISTRY,
    resolve_command,
)


@pytest.mark.parametrize("typed", ["new", "/new", "NEW", "/New", "reset", "/reset", "/rese", " new "])
def test_a_command_is_found_by_name_alias_and_beginning(typed: str) -> None:
    command = resolve_command(typed)
    assert command is not None
    assert command.name == "new"


@pytest.mark.parametrize("typed", ["", "/", "re", "/s", "nothing", "/new title", "//new"])
def test_nothing_is_found_by_what_fits_several_or_none(typed: str) -> None:
    assert resolve_command(typed) is None


def test_a_whole_name_wins_over_longer_ones() -> None:
    found = resolve_command("/re", tuple(one for one in REGISTRY if one.name in {"resume", "title"}))
    assert found is not None
    assert found.name == "resume"
    for command in REGISTRY:
        for name in command.names:
            assert resolve_command(name) is command


def test_no_two_commands_share_a_name() -> None:
    names = [name for command in REGISTRY for name in command.names]
    assert len(names) == len(set(names))
    assert all(name == name.lower().strip("/") and " " not in name for name in names)


def test_every_command_says_what_it_does_in_a_sentence() -> None:
    for command in REGISTRY:
        assert command.help.endswith((".", "…")), command.name
        assert command.help[0].isupper(), command.name


def test_views_have_names_as_they_are_typed() -> None:
    assert COMMANDS["/goal"]
    assert set(COMMANDS) == {f"/{command.name}" for command in REGISTRY}
    together = {name: text for entries in COMMANDS_BY_CATEGORY.values() for name, text in entries.items()}
    assert together == COMMANDS
    assert {"/goal", "/handoff", "/new", "/resume"} <= set(COMMANDS_BY_CATEGORY["Session"])


def test_chats_know_no_command_of_the_terminal() -> None:
    assert {"resume", "new", "reset", "goal", "sethome", "stop"} <= GATEWAY_KNOWN_COMMANDS
    assert "handoff" not in GATEWAY_KNOWN_COMMANDS
    assert not any(name.startswith("/") for name in GATEWAY_KNOWN_COMMANDS)
    only_here = {name for command in REGISTRY if command.cli_only for name in command.names}
    assert not only_here & GATEWAY_KNOWN_COMMANDS


def test_what_would_pull_the_conversation_away_is_refused_during_a_turn() -> None:
    refused = {command.name for command in REGISTRY if command.during_turn == "refused"}
    assert {"new", "resume", "branch", "undo", "retry", "compress"} <= refused
    assert not {"status", "stop", "usage", "history", "background", "search"} & refused

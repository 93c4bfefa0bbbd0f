"""The registry of commands and its views for terminals and chats."""

import pytest

from talaria.commands.registry import (
    COMMANDS,
    COMMANDS_BY_CATEGORY,
    GATEWAY_KNOWN_COMMANDS,
    REGISTRY,
    resolve_command,
)


@pytest.mark.parametrize("typed", ["new", "/new", "NEW", "/New", "reset", "/reset", "/rese", " new "])
def test_command_is_found_by_name_alias_and_prefix(typed: str) -> None:
    command = resolve_command(typed)
    assert command is not None
    assert command.name == "new"


@pytest.mark.parametrize("typed", ["", "/", "re", "/s", "nothing", "/new title", "//new"])
def test_ambiguous_or_unknown_name_finds_no_command(typed: str) -> None:
    assert resolve_command(typed) is None


def test_full_name_wins_over_longer_names() -> None:
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


def test_help_of_every_command_is_a_sentence() -> None:
    for command in REGISTRY:
        assert command.help.endswith((".", "…")), command.name
        assert command.help[0].isupper(), command.name


def test_views_contain_names_with_a_slash() -> None:
    assert COMMANDS["/goal"]
    assert set(COMMANDS) == {f"/{command.name}" for command in REGISTRY}
    together = {name: text for entries in COMMANDS_BY_CATEGORY.values() for name, text in entries.items()}
    assert together == COMMANDS
    assert {"/goal", "/handoff", "/new", "/resume"} <= set(COMMANDS_BY_CATEGORY["Session"])


def test_commands_of_chats_exclude_terminal_commands() -> None:
    assert {"resume", "new", "reset", "goal", "sethome", "stop"} <= GATEWAY_KNOWN_COMMANDS
    assert "handoff" not in GATEWAY_KNOWN_COMMANDS
    assert not any(name.startswith("/") for name in GATEWAY_KNOWN_COMMANDS)
    only_here = {name for command in REGISTRY if command.cli_only for name in command.names}
    assert not only_here & GATEWAY_KNOWN_COMMANDS


def test_commands_that_leave_the_session_are_refused_during_a_turn() -> None:
    refused = {command.name for command in REGISTRY if command.during_turn == "refused"}
    assert {"new", "resume", "branch", "undo", "retry", "compress"} <= refused
    assert not {"status", "stop", "usage", "history", "background", "search"} & refused

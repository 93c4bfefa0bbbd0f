"""The manifest of an app: its scopes, commands and assistant."""

import json
from pathlib import Path

from tests.app.program import Program

from talaria.platforms.slack.setup import make_manifest
from talaria.testing.slack_server.methods import METHODS

COMMANDS = [("status", "How things are"), ("goal", "Work towards\nsomething"), ("x" * 33, "too long"), ("ask", "Ask")]


def test_manifest_grants_all_scopes_of_the_adapter() -> None:
    scopes = set(make_manifest([], assistant=True)["oauth_config"]["scopes"]["bot"])
    assert {method.scope for method in METHODS.values() if method.scope} <= scopes


def test_command_names_reserved_by_slack_are_reached_through_one_command() -> None:
    commands = make_manifest(COMMANDS, command="ask")["features"]["slash_commands"]
    assert [one["command"] for one in commands] == ["/ask", "/goal"]
    assert commands[1]["description"] == "Work towards something"
    many = make_manifest([(f"c{number}", "x") for number in range(80)])
    assert len(many["features"]["slash_commands"]) == 50


def test_manifest_requests_an_assistant_only_if_enabled() -> None:
    without, with_it = make_manifest([]), make_manifest([], assistant=True)
    assert "assistant_view" not in without["features"]
    assert "assistant_view" in with_it["features"]
    assert "assistant_thread_started" in with_it["settings"]["event_subscriptions"]["bot_events"]


def test_program_prints_the_manifest(tmp_path: Path) -> None:
    shown = Program(tmp_path).run("gateway", "slack-manifest")
    assert shown.code == 0
    manifest = json.loads(shown.out)
    commands = {one["command"] for one in manifest["features"]["slash_commands"]}
    assert {"/talaria", "/goal", "/handoff"} & commands == {"/talaria", "/goal"}
    assert "/status" not in commands
    assert manifest["settings"]["socket_mode_enabled"] is True

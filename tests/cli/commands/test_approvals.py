"""`talaria approvals`: list and revoke permanent approvals."""

import json
from pathlib import Path

import pytest
from tests.app.program import Outcome, Program
from tests.cli.stored_sessions import read, write

from talaria.agent.approval.grants import Grant
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.values import SINGLE
from talaria.runtime.questions import SESSION_GRANTS, STANDING_GRANTS, list_standing_grants

GRANTS = [
    Grant("terminal", "pip install requests", exact=True, folder="/project", scope="always"),
    Grant("send_message", "to the family", exact=True, folder="/project", scope="always"),
]


def store_grants(tx: Transaction) -> None:
    STANDING_GRANTS.write(tx, SINGLE, GRANTS)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_new_profile_has_no_permanent_approvals(program: Program) -> None:
    assert program.run("approvals", "list") == Outcome(0, "")
    assert program.run("approvals", "list", "--json") == Outcome(0, "[]\n")
    assert "There are no permanent approvals" in program.run_on_terminal("approvals", "list").out


def test_approval_is_revoked_by_its_id(program: Program) -> None:
    write(program, store_grants)
    first, second = json.loads(program.run("approvals", "list", "--json").out)
    assert (first["tool"], first["allowed"], first["folder"]) == ("terminal", "pip install requests", "/project")
    revoked = program.run("approvals", "revoke", first["id"])
    assert revoked == Outcome(0, "Revoked terminal: pip install requests\n")
    assert program.run("approvals", "list").out == f"{second['id']}\tsend_message\tto the family\t/project\n"


def test_all_approvals_are_revoked_at_once(program: Program) -> None:
    write(program, store_grants)
    assert program.run("approvals", "revoke", "--all").code == 0
    assert read(program, list_standing_grants) == []


@pytest.mark.parametrize("arguments", [["revoke"], ["revoke", "ffffffff"], ["revoke", "ab", "--all"]])
def test_unknown_approval_is_refused(program: Program, arguments: list[str]) -> None:
    write(program, store_grants)
    refused = program.run("approvals", *arguments)
    assert refused.code == 1
    assert "`talaria approvals list`" in refused.err
    assert len(read(program, list_standing_grants)) == 2


def test_tool_cannot_revoke_approvals(program: Program) -> None:
    write(program, store_grants)
    assert program.run("approvals", "revoke", "--all", env={"TALARIA_SESSION_ID": "one"}).code == 1
    assert len(read(program, list_standing_grants)) == 2


def store_session_grant(tx: Transaction) -> None:
    session = tx.sessions.create(NewSession(source="cli"))
    SESSION_GRANTS.write(tx, session.id, [Grant("terminal", "make", exact=True, folder="/project")])


def test_session_approvals_are_listed_and_revoked(program: Program) -> None:
    write(program, store_session_grant)
    assert program.run("approvals", "list", "--json").out == "[]\n"
    (one,) = json.loads(program.run("approvals", "list", "--sessions", "--json").out)
    assert (one["allowed"], bool(one["session"])) == ("make", True)
    assert program.run("approvals", "revoke", one["id"]).out == "Revoked terminal: make\n"
    assert program.run("approvals", "list", "--sessions", "--json").out == "[]\n"


def test_export_has_mode_rules_and_approvals(program: Program) -> None:
    write(program, store_grants)
    program.run("config", "set", "rules.no-push.action", "deny")
    program.run("config", "set", "rules.no-push.command", "git push")
    exported = json.loads(program.run("approvals", "export").out)
    assert exported["mode"] == "ask"
    assert [(one["name"], one["action"], one["command"]) for one in exported["rules"]] == [
        ("no-push", "deny", "git push")
    ]
    assert len(exported["approvals"]) == 2


@pytest.mark.parametrize(
    ("key", "value", "advice"),
    [
        ("rules.x.action", "forbid", "deny"),
        ("rules.x.folder", "src", "a path that starts with / or ~/"),
        ("rules.x.comand", "git", "command"),
    ],
)
def test_invalid_rule_is_refused_with_a_reason(program: Program, key: str, value: str, advice: str) -> None:
    refused = program.run("config", "set", key, value)
    assert refused.code != 0
    assert advice in refused.err


def test_tool_cannot_change_approval_rules(program: Program) -> None:
    changed = program.run("config", "set", "rules.x.action", "allow", env={"TALARIA_SESSION_ID": "one"})
    assert changed.code != 0
    assert json.loads(program.run("approvals", "export").out)["rules"] == []

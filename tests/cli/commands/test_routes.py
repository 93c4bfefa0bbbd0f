"""`talaria routes`: add, list and test, as typed in a shell."""

import json
from pathlib import Path

import pytest
from tests.app.program import Program

CONFIG = """[access]
owners = ["anna"]
[people.anna]
ids = ["telegram:7", "discord:8"]
[personas.ops]
instructions = "You are Ops."
[routes.annas]
person = "anna"
persona = "ops"
[platforms.telegram.rooms.-5]
[platforms.shop]
network = "whatsapp"
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    folder = tmp_path / "profiles" / "default"
    folder.mkdir(mode=0o700, parents=True)
    (folder / "config.toml").write_text(CONFIG)
    return Program(tmp_path)


def test_a_route_is_added_listed_and_tested(program: Program) -> None:
    added = program.run("routes", "add", "work", "--network", "telegram", "--chat", "-42", "--persona", "ops")
    assert (added.code, "`work`" in added.err) == (0, True)
    assert program.run("routes", "list").out.splitlines() == [
        "work\tops\ttelegram\t\t-42\t\t",
        "annas\tops\t\t\t\t\tanna",
    ]
    tested = program.run("routes", "test", "--network", "telegram", "--chat", "-42", "--kind", "group", "--json")
    assert json.loads(tested.out) == {
        "route": "work", "persona": "ops", "why": "`work` matches network telegram, chat -42."
    }  # fmt: skip
    assert program.run("routes", "add", "work", "--network", "slack").code == 0
    assert json.loads(program.run("routes", "list", "--json").out)["work"]["chat"] == ""


def test_route_of_a_person_matches_all_their_ids_but_not_in_rooms(program: Program) -> None:
    for person in ("anna", "telegram:7", "discord:8"):
        assert program.run("routes", "test", "--person", person).out.startswith("ops: `annas` matches person anna.")
    in_room = program.run(
        "routes", "test", "--network", "telegram", "--chat", "-5", "--kind", "group", "--person", "anna"
    )
    assert in_room.out == "the agent itself: No route matches: the agent itself answers.\n"


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (("work", "--chat", "1", "--persona", "opz"), "There is no persona `opz`."),
        (("work", "--persona", "ops"), "A route needs at least one of"),
        (("work", "--network", "telegram", "--server", "1"), "telegram has no servers; name a chat or a person"),
        (("work", "--network", "shop", "--server", "1"), "whatsapp has no servers"),
    ],
)
def test_invalid_route_is_refused(program: Program, arguments: tuple[str, ...], advice: str) -> None:
    done = program.run("routes", "add", *arguments)
    assert done.code != 0
    assert advice in done.err


def test_empty_route_list_shows_how_to_add_one(tmp_path: Path) -> None:
    listed = Program(tmp_path).run("routes")
    assert (listed.code, listed.out) == (0, "")
    assert "There are no routes. `talaria routes add NAME" in listed.err


def test_route_by_server_requires_a_network_with_servers(program: Program) -> None:
    assert program.run("routes", "add", "team", "--network", "slack", "--server", "T1", "--persona", "ops").code == 0
    tested = program.run("routes", "test", "--network", "slack", "--server", "T1", "--chat", "C1", "--kind", "group")
    assert tested.out == "ops: `team` matches network slack, server T1.\n"
    refused = program.run("routes", "test", "--network", "sms", "--server", "T1")
    assert (refused.code, "sms has no servers" in refused.err) == (1, True)
    program.run("config", "set", "routes.odd.network", "line")
    program.run("config", "set", "routes.odd.server", "7")
    assert "odd: line has no servers" in program.run("routes", "list").err
    assert "slack       id of the workspace" in program.run("routes", "--help").out

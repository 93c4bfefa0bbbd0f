"""`talaria mcp`: servers are added, tested, listed and removed, with real server processes."""

import json
import sys
from pathlib import Path

import pytest
from tests.app.program import Program

PLAIN = str(Path(__file__).parents[2] / "tools" / "mcp" / "plain_server.py")


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def config(program: Program) -> Path:
    file = program.home / "profiles" / "default" / "config.toml"
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return file


def test_added_server_is_tested_and_comments_are_preserved(program: Program) -> None:
    config(program).write_text('# mine\n[cli]\ncolor = "never"  # no colours\n')
    added = program.run("mcp", "add", "counter", "--env", "A=1", "--exclude", "hang", "--", sys.executable, PLAIN)
    assert added.code == 0, added.err
    assert added.out.splitlines()[0] == "Added the MCP server counter."
    assert "mcp_counter_grow" in added.out
    assert "mcp_counter_hang" not in added.out
    assert "counter is connected and offers 4 tools" in added.err
    text = config(program).read_text()
    assert text.startswith('# mine\n[cli]\ncolor = "never"  # no colours\n')
    assert "[mcp.counter]" in text
    assert json.loads(program.run("mcp", "list", "--json").out)[0] == {
        "name": "counter", "enabled": True, "transport": "stdio", "target": f"{sys.executable} {PLAIN}",
        "signed_in": False, "account": "", "problem": "",
    }  # fmt: skip
    again = program.run("mcp", "add", "counter", "https://mcp.example.org/")
    assert (again.code, "--replace" in again.err) == (1, True)
    assert program.run("mcp", "remove", "counter").out == "Removed the MCP server counter.\n"
    assert "mcp" not in config(program).read_text()
    assert program.run("mcp", "remove", "counter").code == 1


def test_failed_connection_test_sets_the_exit_code_and_saves_the_server(program: Program) -> None:
    added = program.run("mcp", "add", "web", "http://127.0.0.1:1/mcp", "--header", "Authorization=Bearer ${WEB_TOKEN}")
    assert added.code == 1
    assert "The secret WEB_TOKEN isn't set. Store it with `talaria config set WEB_TOKEN -`." in added.err
    assert "Traceback" not in added.err
    assert "${WEB_TOKEN}" in config(program).read_text()
    tested = program.run("mcp", "test", "--json")
    assert tested.code == 1
    (state,) = json.loads(tested.out)
    assert (state["name"], state["condition"]) == ("web", "disconnected")
    assert "WEB_TOKEN" in state["problem"]


def test_reason_of_a_server_that_cannot_start_is_shown_once(program: Program) -> None:
    added = program.run("mcp", "add", "gone", "--", "/no/such/program")
    reason = "gone can't be used: the program `/no/such/program` isn't installed, or isn't on the PATH."
    assert (added.code, added.err.splitlines()) == (1, ["In an open terminal, `/mcp reload` applies this.", reason])


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["add", "a b", "https://x.example/"], "can't be the name"),
        (["add", "x", "https://x.example/", "more"], "`more` is too much"),
        (["add", "x", "https://x.example/", "--env", "A=1"], "--env is for a program"),
        (["add", "x", "--header", "A=1", "--", "server"], "--header is for a server with an address"),
        (["add", "x", "--env", "A", "--", "server"], "`A` has no value"),
        (["test", "nobody"], "`talaria mcp list` lists them"),
    ],
)
def test_wrong_arguments_are_refused_with_a_reason(program: Program, arguments: list[str], problem: str) -> None:
    done = program.run("mcp", *arguments)
    assert done.code in {1, 2}
    assert problem in done.err
    assert not (program.home / "profiles" / "default" / "config.toml").exists()

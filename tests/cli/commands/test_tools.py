"""`talaria tools`: list tools without a model or a network, and enable or disable them in the settings."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.app.program import Program

from talaria.settings.model import OPTIONAL_TOOLSETS, TOOLSETS

OFF_BY_DEFAULT = ["image_generate", "speak", "browser", "browser_act"]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def config(program: Program, text: str | None = None) -> Path:
    file = program.home / "profiles" / "default" / "config.toml"
    if text is not None:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(text)
    return file


def table(program: Program) -> dict[str, Any]:
    return tomllib.loads(config(program).read_text())


def states(program: Program) -> dict[str, bool]:
    """Return which tools are on."""
    listed = json.loads(program.run("tools", "--json").out)
    return {tool["name"]: tool["enabled"] for toolset in listed["toolsets"] for tool in toolset["tools"]}


def test_all_tools_are_listed_with_their_request_size(program: Program) -> None:
    seen = program.run("tools")
    rows = [line.split("\t") for line in seen.out.splitlines()]
    assert list(dict.fromkeys(row[0] for row in rows)) == [*TOOLSETS, *OPTIONAL_TOOLSETS]
    assert next(row[:4] for row in rows if row[1] == "read_file") == ["files", "read_file", "on", "reads"]
    on = [row for row in rows if row[2] == "on"]
    assert [row[1] for row in rows if row not in on] == OFF_BY_DEFAULT
    total = sum(int(row[4]) for row in on)
    assert f"{len(on)} of {len(rows)} tools are on and add {total:,} bytes to each request." in seen.err
    assert list(program.home.iterdir()) == []


def test_json_has_toolsets_tools_servers_and_total_size(program: Program) -> None:
    config(program, '[tools]\ntoolsets = ["planning"]\ndisabled = ["clarify"]\n[mcp.time]\ncommand = "nowhere"\n')
    listed = json.loads(program.run("tools", "--json").out)
    on = [toolset["name"] for toolset in listed["toolsets"] if toolset["enabled"]]
    (todo,) = (tool for toolset in listed["toolsets"] for tool in toolset["tools"] if tool["enabled"])
    assert on == ["planning"]
    assert (todo["name"], todo["effect"], todo["bytes"]) == ("todo", "idempotent", listed["bytes"])
    assert listed["servers"] == [{"name": "time", "enabled": True}]


def test_toolset_is_disabled_and_enabled_and_comments_are_preserved(program: Program) -> None:
    config(program, '# mine\n[cli]\ncolor = "never"  # no colours\n')
    off = program.run("tools", "disable", "web", "code")
    assert (off.code, off.out) == (0, "Off now: web_fetch, web_search, execute_code.\n")
    assert str(config(program)) in off.err
    remaining = ["terminal", "files", "memory", "skills", "planning", "vision", "send", "cron", "delegation", "media"]
    assert table(program)["tools"] == {"toolsets": remaining}
    assert program.run("tools", "enable", "code", "web").out == "On now: execute_code, web_fetch, web_search.\n"
    assert [name for name, on in states(program).items() if not on] == OFF_BY_DEFAULT
    assert table(program)["tools"] == {}
    assert config(program).read_text().startswith('# mine\n[cli]\ncolor = "never"  # no colours\n')


def test_single_tools_are_switched_independently_of_their_toolset(program: Program) -> None:
    program.run("tools", "disable", "web", "memory.memory", "edit_file")
    off = [name for name, on in states(program).items() if not on and name not in OFF_BY_DEFAULT]
    assert off == ["edit_file", "web_fetch", "web_search", "memory"]
    program.run("tools", "enable", "web_fetch")
    assert states(program)["web_fetch"]
    assert not states(program)["web_search"]
    assert "toolsets" not in table(program)["tools"]
    program.run("tools", "disable", "todo", "clarify")
    assert "planning" not in table(program)["tools"]["toolsets"]


def test_enabling_an_enabled_toolset_writes_nothing(program: Program) -> None:
    assert program.run("tools", "enable", "web").out == "On already: web.\n"
    assert not config(program).exists()


def test_servers_and_their_tools_are_switched(program: Program) -> None:
    config(program, '[mcp.time]\ncommand = "nowhere"  # soon\n')
    assert program.run("tools", "disable", "time", "mcp_time_now").out == "Off now: time, mcp_time_now.\n"
    assert table(program) == {
        "mcp": {"time": {"command": "nowhere", "enabled": False}},
        "tools": {"disabled": ["mcp_time_now"]},
    }
    assert "The MCP server time is off." in program.run("tools").err
    program.run("tools", "enable", "mcp.time", "mcp_time_now")
    assert table(program) == {"mcp": {"time": {"command": "nowhere"}}, "tools": {}}


@pytest.mark.parametrize(("name", "near"), [("trminal", "terminal"), ("read-file", "read_file"), ("webs", "web")])
def test_unknown_tool_is_refused_with_the_nearest_name(program: Program, name: str, near: str) -> None:
    refused = program.run("tools", "disable", "files", name)
    assert (refused.code, refused.out) == (1, "")
    assert f"`{name}` is not a known tool or toolset; the nearest is `{near}`" in refused.err
    assert not config(program).exists()


def test_variable_that_overrides_the_settings_is_reported(program: Program) -> None:
    seen = program.run("tools", "disable", "web", env={"TALARIA__TOOLS__TOOLSETS": "files"})
    assert "TALARIA__TOOLS__TOOLSETS is set and overrides the file" in seen.err


def test_tool_names_are_completed(program: Program) -> None:
    candidates = [line.split("\t")[0] for line in program.run("completion", "--values", "tools").out.splitlines()]
    assert {"web", "web_fetch", "terminal"} <= set(candidates)

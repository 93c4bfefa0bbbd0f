"""MCP servers of the settings in a whole conversation, with a real server and a scripted model."""

import shlex
import sys
from pathlib import Path

import pytest
from tests.app import warm_program
from tests.app.program_with_model import scripted_program, talk
from tests.commands.command_fixture import open_desk
from tests.tools.mcp.warm_servers import settings_of

from talaria.core.addresses import Address
from talaria.testing.model_server import Ask, ModelServer, Say

CLOCK = f'[mcp.time]\ncommand = "{sys.executable}"\nargs = ["-m", "mcp_server_time"]\nconnect_timeout_seconds = 60\n'
NOW = Ask("mcp_time_get_current_time", {"timezone": "Asia/Tokyo"})


def names(server: ModelServer) -> list[str]:
    """Return the tools that the last request told the model of."""
    return [tool["function"]["name"] for tool in server.received[-1].json["tools"]]


async def test_a_tool_of_a_server_answers_the_model(tmp_path: Path, server: ModelServer) -> None:
    server.script(Say(calls=[NOW]), Say("It is late."))
    done = await talk(scripted_program(tmp_path, server, CLOCK), "chat", "-q", "What time is it?")
    assert (done.code, done.out) == (0, "It is late.\n")
    assert {"mcp_time_get_current_time", "mcp_time_convert_time", "terminal"} <= set(names(server))
    told = server.received[1].json["messages"][-1]
    assert told["role"] == "tool"
    assert "+09:00" in told["content"]


async def test_filters_and_switches_decide_which_tools_join(tmp_path: Path, server: ModelServer) -> None:
    clock = settings_of("time", "mcp_server_time")
    settings = f'{clock}exclude = ["convert_time"]\n[tools]\ndisabled = ["mcp_time_get_current_time"]\n'
    program = scripted_program(tmp_path, server, f"{settings}[mcp.other]\ncommand = 'nowhere'\nenabled = false\n")
    done = await talk(program, "chat", "-q", "hi")
    assert (done.code, done.err) == (0, "")
    assert [name for name in names(server) if name.startswith("mcp_")] == []


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ('[mcp.gone]\ncommand = "no-such-program-here"\n', "no-such-program-here"),
        ('[mcp.gone]\nurl = "http://127.0.0.1:1/mcp"\n', ""),
        ('[mcp.gone]\ncommand = "sleep"\nargs = ["60"]\nconnect_timeout_seconds = 0.5\n', "in time"),
        ("[mcp.gone]\nenabled = true\n", "set either mcp.gone.command or mcp.gone.url"),
        (
            '[mcp.gone]\nurl = "http://127.0.0.1:1/mcp"\nheaders = {A = "${NO_TOKEN}"}\n',
            "the secret NO_TOKEN isn't set",
        ),
    ],
)
async def test_a_server_that_is_not_there_is_a_note(
    tmp_path: Path, server: ModelServer, settings: str, why: str
) -> None:
    server.script(Say("Hello."))
    done = await talk(scripted_program(tmp_path, server, settings), "chat", "-q", "hi")
    assert (done.code, done.out) == (0, "Hello.\n")
    assert "The MCP server gone isn't available in this conversation" in done.err
    assert why in done.err
    assert "Traceback" not in done.err


async def test_another_set_of_tools_is_a_recorded_reason_for_another_prefix(
    tmp_path: Path, server: ModelServer
) -> None:
    program = scripted_program(tmp_path, server)
    await talk(program, "chat", "-q", "one")
    file = tmp_path / "profiles" / "default" / "config.toml"
    file.write_text(file.read_text() + settings_of("time", "mcp_server_time"))
    await talk(program, "chat", "-q", "two", "--continue")
    session = (await talk(program, "sessions", "list")).out.split("\t")[0]
    assert "the tool set changed" in (await talk(program, "trace", session)).out


async def test_secrets_reach_a_server_and_not_the_model(tmp_path: Path, server: ModelServer) -> None:
    script = tmp_path / "keeper.py"
    script.write_text(
        "import os\nfrom mcp.server import MCPServer\nfrom mcp_types import ToolAnnotations\n"
        "server = MCPServer('keeper', log_level='WARNING')\n"
        "@server.tool(annotations=ToolAnnotations(read_only_hint=True))\n"
        "def tell() -> str:\n    key = os.environ['KEEPER_KEY']\n    return f'it is {key} {len(key)}'\n"
        "server.run('stdio')\n"
    )
    settings = (
        f'[mcp.keeper]\ncommand = "{sys.executable}"\nargs = ["{script}"]\nconnect_timeout_seconds = 60\n'
        'env = {KEEPER_KEY = "${MY_KEEPER}"}\n'
    )
    program = scripted_program(tmp_path, server, settings, "MY_KEEPER=open-sesame-please\n")
    server.script(Say(calls=[Ask("mcp_keeper_tell", {})]), Say("Done."))
    await talk(program, "chat", "-q", "what is it?")
    told = server.received[1].json["messages"][-1]["content"]
    assert told.splitlines()[:2] == ["<untrusted_content>", "it is «masked secret» 18"]


async def test_a_server_receives_the_session_it_runs_for(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALARIA_SESSION_USER_ID", "of another conversation")
    told = tmp_path / "told"
    script = f"env > {told}; exec {shlex.join(warm_program.command('mcp_server_time'))}"
    settings = f'[mcp.time]\ncommand = "sh"\nargs = ["-c", "{script}"]\nconnect_timeout_seconds = 60\n'
    async with open_desk(tmp_path, server, settings, chat=Address("telegram", "7"), key="k:7") as desk:
        lines = told.read_text().splitlines()
        assert f"TALARIA_SESSION_ID={desk.active_session.session_id}" in lines
        assert {"TALARIA_SESSION_KEY=k:7", "TALARIA_SESSION_CHAT_ID=7", "TALARIA_SESSION_USER_ID="} <= set(lines)

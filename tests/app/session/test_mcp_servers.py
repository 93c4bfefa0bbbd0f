"""MCP servers of the settings in a whole session, with a real server and a scripted model."""

import shlex
import sys
from pathlib import Path

import pytest
from tests.app import warm_program
from tests.app.program_with_model import scripted_program, talk
from tests.commands.command_fixture import open_chat_client
from tests.tools.mcp.warm_servers import settings_of

from talaria.core.addresses import Address
from talaria.testing.model_server import Ask, ModelServer, Say

CLOCK = f'[mcp.time]\ncommand = "{sys.executable}"\nargs = ["-m", "mcp_server_time"]\nconnect_timeout_seconds = 60\n'
NOW = Ask("mcp_time_get_current_time", {"timezone": "Asia/Tokyo"})


def names(server: ModelServer) -> list[str]:
    """Return the names of the tools in the last request to the model."""
    return [tool["function"]["name"] for tool in server.received[-1].json["tools"]]


async def test_model_gets_the_result_of_an_mcp_tool(tmp_path: Path, server: ModelServer) -> None:
    server.script(Say(calls=[NOW]), Say("It is late."))
    done = await talk(scripted_program(tmp_path, server, CLOCK), "chat", "-q", "What time is it?")
    assert (done.code, done.out) == (0, "It is late.\n")
    assert {"mcp_time_get_current_time", "mcp_time_convert_time", "terminal"} <= set(names(server))
    result = server.received[1].json["messages"][-1]
    assert result["role"] == "tool"
    assert "+09:00" in result["content"]


async def test_excluded_and_disabled_mcp_tools_are_not_offered(tmp_path: Path, server: ModelServer) -> None:
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
async def test_unavailable_mcp_server_is_reported_and_the_turn_runs(
    tmp_path: Path, server: ModelServer, settings: str, why: str
) -> None:
    server.script(Say("Hello."))
    done = await talk(scripted_program(tmp_path, server, settings), "chat", "-q", "hi")
    assert (done.code, done.out) == (0, "Hello.\n")
    assert "The MCP server gone isn't available in this conversation" in done.err
    assert why in done.err
    assert "Traceback" not in done.err


async def test_changed_tool_set_is_recorded_as_the_reason_of_a_prefix_break(
    tmp_path: Path, server: ModelServer
) -> None:
    program = scripted_program(tmp_path, server)
    await talk(program, "chat", "-q", "one")
    file = tmp_path / "profiles" / "default" / "config.toml"
    file.write_text(file.read_text() + settings_of("time", "mcp_server_time"))
    await talk(program, "chat", "-q", "two", "--continue")
    session = (await talk(program, "sessions", "list")).out.split("\t")[0]
    assert "the tool set changed" in (await talk(program, "trace", session)).out


async def test_secrets_reach_an_mcp_server_and_not_the_model(tmp_path: Path, server: ModelServer) -> None:
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
    result = server.received[1].json["messages"][-1]["content"]
    assert result.splitlines()[:2] == ["<untrusted_content>", "it is «masked secret» 18"]


async def test_mcp_server_receives_the_variables_of_its_session(
    tmp_path: Path, server: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TALARIA_SESSION_USER_ID", "of another conversation")
    dump = tmp_path / "told"
    script = f"env > {dump}; exec {shlex.join(warm_program.command('mcp_server_time'))}"
    settings = f'[mcp.time]\ncommand = "sh"\nargs = ["-c", "{script}"]\nconnect_timeout_seconds = 60\n'
    async with open_chat_client(tmp_path, server, settings, chat=Address("telegram", "7"), key="k:7") as client:
        lines = dump.read_text().splitlines()
        assert f"TALARIA_SESSION_ID={client.active_session.session_id}" in lines
        assert {"TALARIA_SESSION_KEY=k:7", "TALARIA_SESSION_CHAT_ID=7", "TALARIA_SESSION_USER_ID="} <= set(lines)

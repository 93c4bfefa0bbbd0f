"""`/mcp`, the prompts of MCP servers as commands, and tool lists that change, with a real server process."""

import sys
from pathlib import Path

import pytest
from tests.commands.command_fixture import ChatClient, open_chat_client

from talaria.commands.mcp import list_prompt_commands, read_prompt_arguments
from talaria.contracts.mcp import PromptArgument, ServerPrompt
from talaria.core.errors import Refused
from talaria.sessions.model_context import PREFIX_BREAK
from talaria.testing.model_server import Ask, ModelServer, Say
from talaria.testing.wait import until

PLAIN = Path(__file__).parents[1] / "tools" / "mcp" / "plain_server.py"
COUNTER = f'[mcp.counter]\ncommand = "{sys.executable}"\nargs = ["{PLAIN}"]\nconnect_timeout_seconds = 60\n'
PROMPT = ServerPrompt("s", "p", "", (PromptArgument("city", required=True), PromptArgument("state")))


def tools(server: ModelServer, request: int) -> list[str]:
    """Return the names of the server's tools in a request."""
    names = [tool["function"]["name"] for tool in server.received[request].json["tools"]]
    return [name.removeprefix("mcp_counter_") for name in names if name.startswith("mcp_counter_")]


async def breaks(client: ChatClient) -> list[str]:
    """Return the recorded reasons of prefix breaks."""
    stream = f"session:{client.active_session.session_id}"
    stored = await client.application.store.read(lambda tx: tx.events.after(stream, 0))
    return [one.payload for one in stored if one.kind == PREFIX_BREAK]


@pytest.mark.slow
async def test_changed_tool_list_is_used_from_the_next_turn_with_one_recorded_reason(
    tmp_path: Path, server: ModelServer
) -> None:
    server.script(Say(calls=[Ask("mcp_counter_grow", {})]), Say("Grown."), Say("Two."), Say("Three."))
    async with open_chat_client(tmp_path, server, COUNTER) as client:
        servers = client.active_session.chat.servers
        assert servers is not None
        await client.say("one")
        await until(lambda: len(servers.states()[0].tools) == 6)
        await client.say("two")
        await client.say("three")
        before = ["count", "get_prompt", "grow", "hang", "pid"]
        assert [tools(server, number) for number in range(2)] == [before, before]
        assert [tools(server, number) for number in range(2, 4)] == [sorted([*before, "extra4"])] * 2
        assert await breaks(client) == ['{"reason":"the tool set changed"}']


@pytest.mark.slow
async def test_changed_settings_apply_to_the_next_turn_of_an_open_terminal(tmp_path: Path, server: ModelServer) -> None:
    server.script(Say("One."), Say("Two."), Say("Three."))
    async with open_chat_client(tmp_path, server) as client:
        await client.say("one")
        config = client.application.profile.config_file
        before = config.read_text()
        config.write_text(before + COUNTER)
        await client.say("two")
        config.write_text(f"{before}# without servers\n")
        await client.say("three")
        assert [bool(tools(server, number)) for number in range(3)] == [False, True, False]


@pytest.mark.slow
async def test_mcp_servers_are_listed_described_and_reconnected(tmp_path: Path, server: ModelServer) -> None:
    server.script(Say(calls=[Ask("mcp_counter_count", {})]), Say("Ok."), Say(calls=[Ask("mcp_counter_count", {})]))
    gone = '[mcp.gone]\ncommand = "/no/such/program"\n[mcp.off]\ncommand = "x"\nenabled = false\n'
    async with open_chat_client(tmp_path, server, COUNTER + gone) as client:
        listed = await client.use("/mcp")
        assert "- **counter**: 5 tools, 1 prompt" in listed
        assert "- **gone** isn't connected: " in listed
        assert "- **off** (off)" in listed
        assert "`/counter:greet` Greet a person" in await client.use("/mcp counter")
        assert ("reload", "reconnect all servers") in await client.offers("mcp")
        await client.say("count")
        assert "- **counter**: 5 tools" in await client.use("/mcp reload counter")
        await client.say("count")
        counted = [
            one.json["messages"][-1]["content"] for one in server.received if "tool" in str(one.json["messages"])
        ]
        assert [text.splitlines()[1].split()[0] for text in counted if "in " in text][:1] == ["1"]
        assert "There is no MCP server `nobody`" in await client.use("/mcp reload nobody")
        assert "This conversation has no MCP server `nobody`. Use `/mcp`" in await client.use("/mcp nobody")


@pytest.mark.slow
async def test_mcp_prompts_are_commands_that_send_a_message(tmp_path: Path, server: ModelServer) -> None:
    server.script(Say("Hello!"))
    async with open_chat_client(tmp_path, server, COUNTER) as client:
        client.commands = (*client.commands, *list_prompt_commands(client.active_session))
        assert "`who` is missing. Use `/counter:greet <who> [how]`" in await client.use("/counter:greet")
        await client.use("/counter:greet Ann very warmly")
        await client.active_session.chat.conversation.wait_until_idle()
        assert (await client.transcript())[0] == ("user", "Greet Ann very warmly.")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Paris", {"city": "Paris"}),
        ("state=TX Austin", {"state": "TX", "city": "Austin"}),
        ("'New York' NY", {"city": "New York", "state": "NY"}),
        ("city=a=b", {"city": "a=b"}),
    ],
)
def test_prompt_arguments_are_named_or_in_order(text: str, expected: dict[str, str]) -> None:
    assert read_prompt_arguments(PROMPT, text) == expected


@pytest.mark.parametrize("text", ["", "state=TX", "city=a state=b c"])
def test_missing_and_superfluous_prompt_arguments_are_refused(text: str) -> None:
    with pytest.raises(Refused, match="Use `/s:p <city>"):
        read_prompt_arguments(PROMPT, text)

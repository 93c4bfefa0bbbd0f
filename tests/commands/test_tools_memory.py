"""Tools, memory and sandbox of the agent, shown and changed with `/tools`, `/memory` and `/sandbox`."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.commands.command_fixture import ChatClient, open_chat_client

from talaria.commands.command import Author
from talaria.contracts.stores.sessions import Viewer
from talaria.sessions.model_context import PREFIX_BREAK
from talaria.testing.model_server import ModelServer
from talaria.tools.memory.notebook import FileMemory, Memories


@pytest.fixture
async def client(tmp_path: Path, server: ModelServer) -> AsyncIterator[ChatClient]:
    async with open_chat_client(tmp_path, server) as client:
        yield client


async def test_tools_are_listed_by_toolset(client: ChatClient) -> None:
    shown = await client.use("/tools")
    assert "- **terminal**: `terminal`, `process`\n" in shown
    assert "- **files**: `read_file`, `write_file`" in shown


async def test_disabled_toolset_is_missing_in_the_next_request(client: ChatClient, server: ModelServer) -> None:
    await client.say("one")
    assert await client.use("/tools off web") == "Off now: `web_fetch`, `web_search`."
    await client.say("two")
    assert "- **web** (off): `web_fetch` (off), `web_search` (off)" in await client.use("/tools")
    assert await client.use("/tools off web") == "Off already: `web`."
    await client.use("/tools on web")
    await client.say("three")
    offered = [{tool["function"]["name"] for tool in received.json["tools"]} for received in server.received]
    assert offered[0] - offered[1] == {"web_fetch", "web_search"}
    assert offered[2] == offered[0]
    assert await _breaks(client) == 2


async def test_disabled_tool_is_saved_in_the_settings(tmp_path: Path, server: ModelServer) -> None:
    async with open_chat_client(tmp_path, server) as client:
        await client.use("/tools off write_file edit_file")
        config = (client.application.profile.folder / "config.toml").read_text()
        assert "`write_file` (off), `edit_file` (off)" in await client.use("/tools")
        assert ("on write_file", "files") in await client.offers("tools")
        assert ("off files", "5 tools") in await client.offers("tools")
    assert 'disabled = ["write_file", "edit_file"]' in config


async def test_unknown_tool_name_disables_nothing(client: ChatClient) -> None:
    assert "web_fetch" in await client.use("/tools off terminal web_fetsh")
    assert "`terminal` (off)" not in await client.use("/tools")
    assert "Use `/tools on NAME`" in await client.use("/tools off")
    assert "Use `/tools on NAME`" in await client.use("/tools web")


async def test_variable_that_overrides_the_toolsets_is_named(tmp_path: Path, server: ModelServer) -> None:
    async with open_chat_client(tmp_path, server) as client:
        admin = type(client.application.settings_admin)(
            client.application.settings, client.application.profile, {"TALARIA__TOOLS__TOOLSETS": "files"}
        )
        changed, remarks = admin.switch_tools(["web"], on=False)
        assert list(changed) == ["web_fetch", "web_search"]
        assert "TALARIA__TOOLS__TOOLSETS is set" in remarks[0]
        assert "TALARIA__TOOLS__TOOLSETS is set" in admin.change("tools.toolsets", "web")


async def test_toolsets_of_the_surface_that_override_the_change_are_named(tmp_path: Path, server: ModelServer) -> None:
    async with open_chat_client(tmp_path, server, '[surfaces.cli]\ntoolsets = ["files"]\n') as client:
        shown = await client.use("/tools off web")
        assert shown.endswith("But `surfaces.cli.toolsets` is set, and it decides which toolsets are on here.")


async def test_memory_is_shown_searched_edited_and_single_entries_are_deleted(client: ChatClient) -> None:
    assert await client.use("/memory") == "Nothing is remembered yet."
    folder = client.application.profile.folder / "memory"
    folder.mkdir(exist_ok=True)
    memories = Memories(FileMemory(folder))
    for text in ("The tests run with make test.", "The server is called Hilda."):
        memories.open_notebook(Viewer(), "memory").add(text)
    memories.open_notebook(Viewer(), "user").add("Likes tea, and tests.")
    assert "The server is called Hilda." in await client.use("/memory")
    assert "Type more of the one to forget:\n\n- The tests run" in await client.use("/memory forget tests")
    assert (await client.use("/memory forget HILDA")).startswith("Forgotten: The server is called Hilda.")
    assert "Likes tea" in await client.use("/memory")
    assert "Hilda" not in client.shown[-1]
    assert await client.use("/memory forget Hilda") == "No memory entry contains `Hilda`."
    found = await client.use("/memory find tea")
    assert found.splitlines()[0].endswith("Likes tea, and tests.")
    name = found.split("`")[1]
    assert await client.use(f"/memory edit {name} Likes coffee.") == "Changed: Likes coffee."
    assert "Likes coffee." in await client.use("/memory")
    assert "There is no memory entry `beef`" in await client.use("/memory edit beef x")
    assert "Use `/memory`" in await client.use("/memory edit")
    assert "Use `/memory`" in await client.use("/memory forget")
    assert "Use `/memory`" in await client.use("/memory burn it")
    assert "Only the owner" in await client.use("/memory", author=Author("eve", owner=False))


async def _breaks(client: ChatClient) -> int:
    stream = f"session:{client.active_session.session_id}"
    events = await client.application.store.read(lambda tx: tx.events.after(stream, 0))
    return len([event for event in events if event.kind == PREFIX_BREAK])


async def test_sandbox_is_chosen_for_the_session(client: ChatClient, server: ModelServer) -> None:
    assert (await client.use("/sandbox")).startswith("Commands run without a sandbox (as in the settings).")
    assert "There is no sandbox `jail`" in await client.use("/sandbox jail")
    assert "run in a docker container." in await client.use("/sandbox docker")
    assert (await client.use("/sandbox")).startswith("Commands run in a docker sandbox (chosen for this conversation).")
    await client.say("one")
    assert "run in a container" in str(server.received[-1].json["messages"][0])
    assert ("off", "without a sandbox, with the same access as you") in await client.offers("sandbox")
    await client.use("/sandbox default")
    assert "without a sandbox (as in the settings)" in await client.use("/sandbox")
    assert "Only the owner" in await client.use("/sandbox off", author=Author("eve", owner=False))

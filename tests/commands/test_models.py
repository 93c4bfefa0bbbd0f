"""Model and options of a session, set with commands: `/model`, `/provider`, `/reasoning` and `/personality`."""

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.commands.command_fixture import ChatClient, open_chat_client

from talaria.commands.command import Author
from talaria.core.events import TextAdded
from talaria.sessions.model_context import PREFIX_BREAK
from talaria.testing.model_server import ModelServer, Silence

PRICED = """
[models.clever]
context_limit = 50000
input_price = 3.0
output_price = 15.0
reasoning = true
"""


@pytest.fixture
async def server() -> AsyncIterator[ModelServer]:
    async with ModelServer(models=("scripted", "clever")) as server:
        yield server


@pytest.fixture
async def client(tmp_path: Path, server: ModelServer) -> AsyncIterator[ChatClient]:
    async with open_chat_client(tmp_path, server, PRICED) as client:
        yield client


async def test_model_shows_the_model_of_the_session_and_why_it_was_chosen(client: ChatClient) -> None:
    shown = await client.use("/model")
    assert shown.startswith("This conversation uses `mine:scripted`. Chosen by the setting `model.provider`.")


async def test_changed_model_is_used_from_the_next_message(client: ChatClient, server: ModelServer) -> None:
    await client.say("one")
    shown = await client.use("/model clever")
    assert "now uses `mine:clever`" in shown
    assert "Context: 50,000 tokens. Price: $3 in, $15 out per million tokens" in shown
    await client.say("two")
    assert _models(server) == ["scripted", "clever"]
    assert await _breaks(client) == ["the model changed"]
    assert "Chosen for this conversation." in await client.use("/model")


async def test_model_default_restores_the_model_of_the_settings(client: ChatClient, server: ModelServer) -> None:
    await client.use("/model mine:clever")
    assert "now uses `mine:scripted`, as in the settings" in await client.use("/model default")
    await client.say("hi")
    assert _models(server) == ["scripted"]


async def test_model_is_chosen_for_one_session_and_stored_with_it(tmp_path: Path, server: ModelServer) -> None:
    async with open_chat_client(tmp_path, server) as client:
        await client.say("one")
        await client.use("/model clever")
        here = client.active_session.session_id
        await client.active_session.reset_session()
        await client.say("elsewhere")
    async with open_chat_client(tmp_path, server, resume=here) as client:
        await client.say("two")
        session = await client.application.store.read(lambda tx: tx.sessions.get(here))
    assert _models(server) == ["scripted", "scripted", "clever"]
    assert session is not None
    assert session.model == "clever"


async def test_model_command_overrides_the_model_of_the_command_line(tmp_path: Path, server: ModelServer) -> None:
    async with open_chat_client(tmp_path, server, model="mine:scripted") as client:
        assert "Chosen when this chat was opened." in await client.use("/model")
        await client.use("/model clever")
        await client.say("hi")
    assert _models(server) == ["clever"]


async def test_unknown_model_does_not_change_the_model(client: ChatClient, server: ModelServer) -> None:
    assert "clever" in await client.use("/model clevr")
    await client.say("hi")
    assert _models(server) == ["scripted"]


async def test_model_options_and_tools_cannot_be_changed_during_a_turn(client: ChatClient, server: ModelServer) -> None:
    server.script(Silence())
    await client.use("/queue go")
    await server.arrived()
    for command in ("/model clever", "/provider mine", "/reasoning high", "/personality pirate", "/tools off web"):
        assert (await client.use(command)).startswith("A turn is running. Stop it with `/stop` first")
    assert "Reasoning output: hidden." in await client.use("/reasoning")
    client.active_session.chat.conversation.stop()


async def test_usable_models_are_offered_as_completions(client: ChatClient) -> None:
    assert [name for name, _ in await client.offers("model")][:2] == ["mine:scripted", "mine:clever"]
    await client.use("/model clever")
    assert (await client.offers("model"))[0] == ("default", "as in the settings")


async def test_guest_cannot_choose_a_model(client: ChatClient) -> None:
    refusal = "Only the owner of this agent can use `/model`."
    assert await client.use("/model clever", author=Author("eve", owner=False)) == refusal


async def test_provider_lists_and_chooses_providers(client: ChatClient, server: ModelServer) -> None:
    assert "- `mine`: 2 models, used here" in await client.use("/provider")
    assert ("mine", "2 models") in await client.offers("provider")
    await client.use("/model clever")
    assert "now uses `mine:scripted`" in await client.use("/provider mine")
    assert "There is no" in await client.use("/provider nowhere") or "No configured provider" in client.shown[-1]


async def test_reasoning_sets_the_effort_of_the_model(client: ChatClient, server: ModelServer) -> None:
    await client.use("/model clever")
    assert "`model default`, as in the settings. Reasoning output: hidden." in await client.use("/reasoning")
    await client.say("one")
    assert "a lot of reasoning" in await client.use("/reasoning high")
    assert "`high`, chosen for this conversation" in await client.use("/reasoning")
    await client.say("two")
    await client.use("/reasoning default")
    await client.say("three")
    assert [received.json.get("reasoning_effort") for received in server.received] == [None, "high", None]
    assert await _breaks(client) == ["the model's options changed"] * 2


async def test_reasoning_output_is_shown_or_hidden_on_this_surface(client: ChatClient) -> None:
    await client.use("/reasoning show")
    assert client.surface.display.reasoning
    await client.use("/reasoning hide")
    assert not client.surface.display.reasoning
    assert "Unknown effort `much`" in await client.use("/reasoning much")
    assert ("high", "a lot of reasoning; takes time and tokens") in await client.offers("reasoning")


async def test_personality_changes_the_instructions_until_it_is_removed(
    client: ChatClient, server: ModelServer
) -> None:
    await client.say("one")
    assert "- `pirate`: Speak like an old sea captain" in await client.use("/personality")
    await client.use("/personality pirate")
    for text in ("two", "three"):
        await client.say(text)
    await client.use("/personality none")
    await client.say("four")
    captain = ["sea captain" in str(received.json["messages"][0]) for received in server.received]
    assert captain == [False, True, True, False]
    assert await _breaks(client) == ["the model's options changed"] * 2
    assert "`pirate` (chosen here)" not in await client.use("/personality")


async def test_unknown_personality_is_answered_with_the_available_ones(client: ChatClient) -> None:
    assert "There is no personality `duke`. Available: concise, pirate" in await client.use("/personality duke")
    assert "pirate" in dict(await client.offers("personality"))


async def test_commands_unrelated_to_the_model_do_not_break_the_prefix(client: ChatClient, server: ModelServer) -> None:
    for command in ("/model", "/reasoning show", "/verbose all", "/footer on", "/tools", "/personality", "/config"):
        await client.say("and?")
        await client.use(command)
    assert await _breaks(client) == []
    messages: list[list[Any]] = [received.json["messages"] for received in server.received]
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(messages))
    assert any(isinstance(event, TextAdded) for event in client.events)


def _models(server: ModelServer) -> list[str]:
    return [received.json["model"] for received in server.received]


async def _breaks(client: ChatClient) -> list[str]:
    stream = f"session:{client.active_session.session_id}"
    events = await client.application.store.read(lambda tx: tx.events.after(stream, 0))
    return [event.payload.split('"')[3] for event in events if event.kind == PREFIX_BREAK]

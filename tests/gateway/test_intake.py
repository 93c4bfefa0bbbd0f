"""What arrives is kept and acted upon, and one chat never holds up another."""

from pathlib import Path

from tests.gateway.small_gateway import SmallGateway, served

from talaria.contracts.platform import Abilities
from talaria.core.addresses import Address
from talaria.sessions.preferences import Preferences, write_preferences
from talaria.sessions.session_keys import build_session_key
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say

NETWORK = Abilities(text_limit=4096, idempotent=True)


async def test_a_conversation_that_cannot_be_opened_keeps_no_other_chat_waiting(tmp_path: Path) -> None:
    async with ModelServer() as server, LoopbackNetwork(NETWORK) as network:
        server.answering(lambda received: Say(f"re: {received.question}"))
        async with served(tmp_path, network.platform(), server.url) as gateway:
            network.say("ann", "first")
            await network.posted(1)
            await spoil(gateway, "ann")
            network.say("ann", "second")
            network.say("bob", "hello", sender="bob")
            await network.until(lambda: network.shown("bob") == ["re: hello"])
            assert network.receivers == 1
            await network.posted(3)
    first, told = network.shown("ann")
    assert (first, told.partition(":")[0]) == ("re: first", "What you wrote waits")


async def test_a_button_that_nobody_waits_for_is_no_message(tmp_path: Path) -> None:
    async with ModelServer() as server, LoopbackNetwork(NETWORK) as network:
        server.answering(lambda received: Say(f"re: {received.question}"))
        async with served(tmp_path, network.platform(), server.url):
            network.press("ann", "1", "long-ago:0")
            network.say("ann", "hello")
            await network.posted(1)
    assert network.shown("ann") == ["re: hello"]


async def spoil(gateway: SmallGateway, chat: str) -> None:
    """Let the room of a chat go, and have its conversation wish for a provider that there is none."""
    key = build_session_key(Address("loopback", chat))
    room = gateway.rooms.find(key)
    assert room is not None
    session_id = room.seat.session_id
    gateway.rooms.let_go(key)
    choice = Preferences(model="nobody:nothing")
    await gateway.house.store.write(lambda tx: write_preferences(tx, session_id, choice))


async def test_what_is_said_right_behind_a_command_comes_behind_it(tmp_path: Path) -> None:
    chats = [f"chat-{number}" for number in range(20)]
    async with ModelServer() as server, LoopbackNetwork(NETWORK) as network:
        server.answering(lambda received: Say(f"re: {received.question}"))
        async with served(tmp_path, network.platform(), server.url):
            for chat in chats:
                network.say(chat, "first", sender=chat)
            await network.until(lambda: all("re: first" in network.shown(chat) for chat in chats), seconds=30)
            for chat in chats:
                for text in ("/new", "/title Harbour", "second"):
                    network.say(chat, text, sender=chat)
            await network.until(lambda: all("re: second" in network.shown(chat) for chat in chats), seconds=30)
    asked = [call.json["messages"] for call in server.received if call.question == "second"]
    assert [len(messages) for messages in asked] == [2] * len(chats)
    assert all("now called *Harbour*" in network.shown(chat)[2] for chat in chats)

"""Encrypted rooms: messages are decrypted and answered, and the homeserver sees no plain text."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import nio
import pytest
from tests.platforms.matrix.matrix_clients import BotAccount, Person

from talaria.contracts.platform import Button, Content, MessageRef
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials
from talaria.core.ids import new_id
from talaria.core.messages import File
from talaria.testing.homeserver import HomeserverClient
from talaria.testing.wait import LIMIT, until

pytest.importorskip("vodozemac")

ENCRYPTION = {"type": "m.room.encryption", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}


@pytest.fixture
def alice(homeserver_client: HomeserverClient) -> Person:
    """A new person, without the devices and rooms of other tests."""
    return Person(homeserver_client, homeserver_client.register(f"alice-{new_id()}".lower()))


class Reader:
    """Alice with a client that encrypts."""

    def __init__(self, client: nio.AsyncClient) -> None:
        self.client = client
        self.seen: list[Any] = []

    async def sync(self) -> None:
        answer = await self.client.sync(200)
        for call in (
            (self.client.should_upload_keys, self.client.keys_upload),
            (self.client.should_query_keys, self.client.keys_query),
        ):
            if call[0]:
                await call[1]()
        await self.client.send_to_device_messages()
        for info in answer.rooms.join.values():
            self.seen += info.timeline.events

    async def wait_for(self, matches: Callable[[Any], bool]) -> Any:
        async with asyncio.timeout(LIMIT):
            while not (found := [one for one in self.seen if matches(one)]):
                await self.sync()
        return found[-1]

    async def say(self, room: str, content: dict[str, object]) -> str:
        sent = await self.client.room_send(room, "m.room.message", content, ignore_unverified_devices=True)
        return str(sent.event_id)


@asynccontextmanager
async def encrypting(alice: Person, folder: Path) -> AsyncIterator[Reader]:
    config = nio.AsyncClientConfig(encryption_enabled=True)
    client = nio.AsyncClient(alice.homeserver_client.url, alice.user_id, store_path=str(folder), config=config)
    device = alice.call("GET", "/account/whoami")["device_id"]
    client.restore_login(alice.user_id, device, alice.token)
    try:
        reader = Reader(client)
        await reader.sync()
        yield reader
    finally:
        await client.close()
        client.store.database.close()


def from_us(bot_account: BotAccount, text: str) -> Callable[[Any], bool]:
    return lambda one: one.sender == bot_account.user_id and getattr(one, "body", "") == text


MEGOLM = {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "x", "device_id": "D", "session_id": "s"}
UNDECRYPTABLE: list[dict[str, object]] = [
    {},
    {**MEGOLM, "sender_key": ""},
    {**MEGOLM, "sender_key": "k"},
    {**MEGOLM, "sender_key": "k", "session_id": 3},
]


async def test_undecryptable_events_are_skipped(bot_account: BotAccount, alice: Person, tmp_path: Path) -> None:
    async with encrypting(alice, tmp_path) as reader, bot_account.listening(encryption=True) as recorder:
        room = alice.room_with(bot_account.user_id, initial_state=[ENCRYPTION])
        await until(lambda: bot_account.user_id in alice.members(room))
        await reader.wait_for(
            lambda one: getattr(one, "membership", "") == "join" and one.sender == bot_account.user_id
        )
        for content in UNDECRYPTABLE:
            alice.post(room, content, "m.room.encrypted")
        await reader.say(room, {"msgtype": "m.text", "body": "still there?"})
        assert (await recorder.one()).text == "still there?"


async def test_new_login_has_its_own_encryption_keys(bot_account: BotAccount, alice: Person, tmp_path: Path) -> None:
    by_password = {
        "token": "",
        "user": bot_account.user_id,
        "password": bot_account.account.password,
        "encryption": True,
    }
    us = Person(alice.homeserver_client, bot_account.account)
    async with encrypting(alice, tmp_path) as reader:
        room = alice.room_with(bot_account.user_id, initial_state=[ENCRYPTION])
        us.join(room)
        platform = bot_account.open(**by_password)
        async with platform.connect():
            await platform.send(Address("matrix", room), Content(text="first"), "1")
        await reader.wait_for(from_us(bot_account, "first"))
        us.call("POST", "/logout/all", {})
        with pytest.raises(BadCredentials):
            async with platform.connect():
                pass
        async with platform.connect():
            await platform.send(Address("matrix", room), Content(text="second"), "2")
        await reader.wait_for(from_us(bot_account, "second"))
    assert len(list((bot_account.folder / "keys").glob("*.db"))) == 2


async def test_encrypted_chat_continues_after_a_restart(bot_account: BotAccount, alice: Person, tmp_path: Path) -> None:
    document = tmp_path / "plan.txt"
    document.write_text("a secret plan")
    async with encrypting(alice, tmp_path) as reader:
        async with bot_account.listening(encryption=True) as recorder:
            room = alice.room_with(bot_account.user_id, initial_state=[ENCRYPTION])
            await until(lambda: bot_account.user_id in alice.members(room))
            await reader.wait_for(
                lambda one: getattr(one, "membership", "") == "join" and one.sender == bot_account.user_id
            )
            await reader.say(room, {"msgtype": "m.text", "body": "can you read this?"})
            received = await recorder.one()
            assert received.text == "can you read this?"
            buttons = (Button("Yes", "y"),)
            answer = Content(text="every word", reply_to=received.message_id, buttons=buttons)
            first = await recorder.platform.send(received.address, answer, "key")
            again = await recorder.platform.send(received.address, answer, "key")
            await recorder.platform.edit(first, Content(text="every single word"))
            await recorder.platform.send(received.address, Content(files=(File(str(document), "plan.txt"),)), "file")
            shown = await reader.wait_for(from_us(bot_account, "plan.txt"))
            alice.post(
                room,
                {"m.relates_to": {"rel_type": "m.annotation", "event_id": first.message_id, "key": "Yes"}},
                "m.reaction",
            )
            assert (await recorder.one()).button == "y"
            await recorder.platform.react(MessageRef(received.address, received.message_id), "👀")
            await recorder.platform.react(MessageRef(received.address, received.message_id), "👍")
            reactions = [one["content"]["m.relates_to"] for one in alice.events(room, "m.reaction") if one["content"]]
            assert [one["key"] for one in reactions if one["event_id"] == received.message_id] == ["👍"]
            source = shown.source["content"]
            await reader.say(room, {"msgtype": "m.file", "body": "plan.txt", "file": source["file"]})
            attached = await recorder.one()
            path = await recorder.platform.fetch(attached.attachments[0], tmp_path / "media")
        assert first == again
        assert path.read_text() == "a secret plan"
        await reader.wait_for(from_us(bot_account, "every word"))
        async with bot_account.listening(encryption=True) as recorder:
            await reader.say(room, {"msgtype": "m.text", "body": "still there?"})
            assert (await recorder.one()).text == "still there?"
            await recorder.platform.send(Address("matrix", room), Content(text="always"), "later")
        await reader.wait_for(from_us(bot_account, "always"))
    assert alice.events(room) == []
    assert "word" not in str(alice.events(room, "m.room.encrypted"))

"""The contract suite on ntfy, and what only ntfy has: topics without senders, and links to files elsewhere."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from talaria.contracts.platform import Attachment, Content
from talaria.contracts.store import Store
from talaria.contracts.values import DurableValue
from talaria.core.addresses import Address
from talaria.core.errors import Refused, Rejected
from talaria.platforms.ntfy.adapter import NTFY_POSITION, Ntfy
from talaria.platforms.ntfy.settings import NtfySettings, read_settings
from talaria.testing.ntfy_server import NtfyServer, ntfy_server
from talaria.testing.platform_suite import FailureKind, PlatformSuite, VisibleMessage, next_incoming

pytestmark = pytest.mark.one_engine
TOKEN = "tk_of_the_tests"
FILE_LIMIT = 1024 * 1024


class NtfyFarSide:
    def __init__(self, server: NtfyServer, store: Store) -> None:
        settings = NtfySettings(
            topics=("ann", "home"),
            token=TOKEN,
            server=server.url,
            file_limit=FILE_LIMIT,
            patience=timedelta(seconds=5),
            file_patience=timedelta(seconds=30),
            silence=timedelta(seconds=6),
        )
        self.platform = Ntfy(settings, DurableValue(store, NTFY_POSITION, "ntfy"))
        self.secret = TOKEN
        self.private = Address("ntfy", "ann")
        self.group: Address | None = None
        self.thread: Address | None = None
        self.nowhere = Address("ntfy", "nobody")
        self.server = server

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        await self.server.publish(at.chat_id, text)

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        await self.server.publish_file(at.chat_id, name, data)

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        raise NotImplementedError

    async def reacts(self, at: Address, message_id: str, emoji: str) -> None:
        raise NotImplementedError

    async def own_reactions(self, at: Address, message_id: str) -> list[str]:
        raise NotImplementedError

    async def redelivers(self) -> bool:
        return False

    async def seen(self, at: Address) -> list[VisibleMessage]:
        ours = [one for one in self.server.messages if one.get("title") == "Talaria" and one["topic"] == at.chat_id]
        return [
            VisibleMessage(
                message_id=one["id"],
                text=one["message"],
                files=(one["attachment"]["name"],) if "attachment" in one else (),
            )
            for one in ours
        ]

    async def disrupt(self, failure: FailureKind) -> bool:
        if failure == "cut":
            self.server.hang_up()
        else:
            self.server.failure = failure
        return True

    async def calm(self) -> None:
        self.server.failure = None


@pytest.fixture
async def far_side(store: Store) -> AsyncIterator[NtfyFarSide]:
    async with ntfy_server(TOKEN, frozenset({"ann", "home"}), file_limit=FILE_LIMIT) as server:
        there = NtfyFarSide(server, store)
        try:
            yield there
        finally:
            await there.platform.close()


class TestNtfy(
    PlatformSuite,
    lacks={"reactions", "idempotent", "edits", "buttons", "groups", "threads", "servers", "typing", "redelivery"},
):
    pass


async def test_own_notifications_are_not_received(far_side: NtfyFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        await far_side.platform.send(far_side.private, Content(text="Water the plants."), "ours")
        await far_side.says(far_side.private, "Done.")
        assert (await next_incoming(arrivals)).text == "Done."


async def test_first_connection_ignores_older_messages(far_side: NtfyFarSide) -> None:
    await far_side.says(far_side.private, "from last week")
    async with far_side.platform.connect() as arrivals:
        await far_side.says(far_side.private, "from now")
        assert (await next_incoming(arrivals)).text == "from now"


async def test_each_topic_is_a_chat(far_side: NtfyFarSide) -> None:
    async with far_side.platform.connect() as arrivals:
        await far_side.server.publish("home", "The door is open.", title="Sensor")
        received = await next_incoming(arrivals)
    assert (received.address, received.sender.id) == (Address("ntfy", "home"), "home")
    assert received.text == "Sensor\nThe door is open."


async def test_file_on_another_server_is_not_downloaded(far_side: NtfyFarSide, tmp_path: Path) -> None:
    link = Attachment("http://127.0.0.1:9/secrets.txt", "document", "secrets.txt")
    with pytest.raises(Rejected, match="another server"):
        await far_side.platform.fetch(link, tmp_path)


@pytest.mark.parametrize(
    ("topics", "options", "problem"),
    [
        ("no/topic", {}, "`no/topic` is no ntfy topic"),
        ("ann", {"server": "ntfy.example"}, "must start with http"),
        ("ann", {"sever": "https://ntfy.example"}, "unknown field `sever`"),
        ("ann", {"file_limit": "-1"}, "file_limit"),
    ],
)
def test_invalid_settings_are_named(topics: str, options: dict[str, str], problem: str) -> None:
    with pytest.raises(Refused, match=problem):
        read_settings("ntfy", options, topics, "")

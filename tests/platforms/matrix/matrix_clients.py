"""Both sides of a chat: people who use the homeserver over plain HTTP, and the adapter of the bot account."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from talaria.contracts.platform import Incoming
from talaria.core.ids import new_id
from talaria.platforms.matrix.adapter import Matrix
from talaria.platforms.matrix.settings import MatrixSettings
from talaria.testing.homeserver import Account, HomeserverClient
from talaria.testing.wait import LIMIT, until

Json = dict[str, Any]
_SECONDS = LIMIT


class Person:
    """A person who calls the homeserver over plain HTTP, without the code of the adapter."""

    def __init__(self, homeserver_client: HomeserverClient, account: Account) -> None:
        self.user_id = account.user_id
        self.token = account.token
        self.homeserver_client = homeserver_client

    def call(self, method: str, path: str, body: object = None, *, version: str = "v3") -> Any:
        return self.homeserver_client.call(method, f"/_matrix/client/{version}{path}", body, token=self.token)

    def room_with(self, *others: str, **more: object) -> str:
        options = {"preset": "trusted_private_chat", "invite": list(others), **more}
        made: str = self.call("POST", "/createRoom", options)["room_id"]
        return made

    def join(self, room: str) -> None:
        self.call("POST", f"/rooms/{quote(room)}/join", {})

    def post(self, room: str, content: Json, kind: str = "m.room.message") -> str:
        made: str = self.call("PUT", f"/rooms/{quote(room)}/send/{kind}/{new_id()}", content)["event_id"]
        return made

    def say(self, room: str, text: str, **more: object) -> str:
        return self.post(room, {"msgtype": "m.text", "body": text, **more})

    def end_of(self, room: str) -> str:
        """Return the position after everything that was posted so far."""
        end: str = self.call("GET", f"/rooms/{quote(room)}/messages?dir=b&limit=1")["start"]
        return end

    def events(self, room: str, kind: str = "m.room.message", *, since: str = "") -> list[Json]:
        """Return the events of a type in a room, or those posted after a position; oldest first."""
        filter_text = quote(msgspec.json.encode({"types": [kind]}).decode())
        start = f"&from={since}" if since else ""
        page = self.call("GET", f"/rooms/{quote(room)}/messages?dir=f&limit=500&filter={filter_text}{start}")
        return list(page["chunk"])

    def event(self, room: str, event_id: str) -> Json:
        found: Json = self.call("GET", f"/rooms/{quote(room)}/event/{quote(event_id)}")
        return found

    def members(self, room: str) -> set[str]:
        return set(self.call("GET", f"/rooms/{quote(room)}/joined_members")["joined"])


class MemoryPosition:
    """A sync position in memory; ``saved`` has every position that was saved."""

    def __init__(self) -> None:
        self.saved: list[str] = []

    async def load(self) -> str:
        return self.saved[-1] if self.saved else ""

    async def save(self, token: str) -> None:
        self.saved.append(token)


class BotAccount:
    """A bot account; each `open` creates a new adapter, as after a restart of the process."""

    def __init__(
        self, homeserver_client: HomeserverClient, account: Account, folder: Path, allowed: tuple[str, ...] = ()
    ) -> None:
        self.user_id = account.user_id
        self.account = account
        self.position = MemoryPosition()
        self.folder = folder / "account"
        self.settings = MatrixSettings(
            homeserver=homeserver_client.url,
            token=account.token,
            allowed=allowed,
            poll=timedelta(seconds=2),
            patience=timedelta(seconds=20),
        )

    def open(self, **changes: object) -> Matrix:
        return Matrix(msgspec.structs.replace(self.settings, **changes), self.folder, self.position)

    @asynccontextmanager
    async def listening(self, **changes: object) -> AsyncIterator["IncomingRecorder"]:
        """Receive messages in the background while the block runs, as the gateway does."""
        platform = self.open(**changes)
        recorder = IncomingRecorder(platform)
        async with asyncio.TaskGroup() as group:
            task = group.create_task(recorder.listen())
            await until(lambda: bool(self.position.saved) or task.done())
            yield recorder
            task.cancel()


class IncomingRecorder:
    """A recorder of received messages."""

    def __init__(self, platform: Matrix) -> None:
        self.platform = platform
        self.received: list[Incoming] = []
        self._more = asyncio.Event()

    async def listen(self) -> None:
        async with self.platform.connect() as arriving:
            async for incoming in arriving:
                self.received.append(incoming)
                self._more.set()

    async def next(self, count: int = 1) -> list[Incoming]:
        """Wait for this many messages, remove and return them."""
        async with asyncio.timeout(LIMIT):
            while len(self.received) < count:
                self._more.clear()
                await self._more.wait()
        received, self.received = self.received[:count], self.received[count:]
        return received

    async def one(self) -> Incoming:
        return (await self.next())[0]


async def create_shared_room(
    bot_account: BotAccount, person: Person, recorder: IncomingRecorder, *others: Person
) -> str:
    """Let a person create a room and invite the bot and others; wait until all have joined."""
    room = await asyncio.to_thread(person.room_with, bot_account.user_id, *(one.user_id for one in others))
    for one in others:
        one.join(room)
    await until(lambda: bot_account.user_id in person.members(room))
    return room

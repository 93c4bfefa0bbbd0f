"""The far side of Matrix for the contract suite: people on a real homeserver, behind a proxy that can fail."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path

from aiohttp import ClientSession, web
from tests.platforms.matrix.matrix_clients import BotAccount, Json, Person

from talaria.core.addresses import Address
from talaria.core.ids import new_id
from talaria.platforms.matrix.adapter import Matrix
from talaria.testing.homeserver import Account, HomeserverClient
from talaria.testing.platform_suite import FailureKind, VisibleMessage

_HOP_HEADERS = {"connection", "content-length", "transfer-encoding", "content-encoding", "host"}


class FaultyProxy:
    """A proxy between the bot account and its homeserver that forwards requests, or fails as ``failure`` says."""

    def __init__(self, target: str) -> None:
        self.failure: FailureKind | None = None
        self._target = target
        self._end = asyncio.Event()
        self._session = ClientSession()

    async def open(self) -> str:
        application = web.Application(client_max_size=10_000_000)
        application.router.add_route("*", "/{path:.*}", self.forward)
        self._runner = web.AppRunner(application, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    def cut(self) -> None:
        assert self._runner.server is not None
        for one in self._runner.server.connections:
            one.force_close()

    async def forward(self, request: web.Request) -> web.StreamResponse:
        syncing = request.path.endswith("/sync")
        if self.failure == "silent" or (self.failure == "deaf" and syncing):
            await self._end.wait()
        if self.failure == "failing":
            return web.Response(status=502, text="<html>Bad Gateway</html>", content_type="text/html")
        body = await request.read()
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP_HEADERS}
        async with self._session.request(
            request.method, self._target + request.raw_path, data=body, headers=headers
        ) as answer:
            response_headers = {
                name: value for name, value in answer.headers.items() if name.lower() not in _HOP_HEADERS
            }
            return web.Response(status=answer.status, body=await answer.read(), headers=response_headers)

    async def upload(self, data: bytes, token: str) -> str:
        headers = {"Authorization": f"Bearer {token}"}
        async with self._session.post(f"{self._target}/_matrix/media/v3/upload", data=data, headers=headers) as answer:
            return str((await answer.json())["content_uri"])

    async def close(self) -> None:
        self._end.set()
        await self._runner.cleanup()
        await self._session.close()


class SharedRooms:
    """A bot account and two people in rooms that all contract tests of a process share: a room is expensive."""

    def __init__(self, homeserver_client: HomeserverClient) -> None:
        names = [f"{name}-{new_id()}" for name in ("bot", "alice", "carol", "admin")]
        self.account, alice, carol = [homeserver_client.register(name) for name in names[:3]]
        self.admin = Person(homeserver_client, homeserver_client.register(names[3], admin=True))
        self.alice, self._carol = Person(homeserver_client, alice), Person(homeserver_client, carol)

    @cached_property
    def private(self) -> Address:
        return Address("matrix", self._room())

    @cached_property
    def group(self) -> Address:
        return Address("matrix", self._room(self._carol), "group")

    @cached_property
    def thread(self) -> str:
        return self.alice.say(self.group.chat_id, "A thread begins.")

    def _room(self, *others: Person) -> str:
        us = Person(self.alice.homeserver_client, self.account)
        room = self.alice.room_with(us.user_id, *(one.user_id for one in others))
        for one in (us, *others):
            one.join(room)
        return room


class MatrixFarSide:
    """Implement `FarSide` with a new device of the bot account; events before its creation are ignored."""

    def __init__(self, platform: Matrix, account: Account, rooms: SharedRooms, proxy: FaultyProxy) -> None:
        self.platform = platform
        self.secret = account.token
        self.private = rooms.private
        self.nowhere = Address("matrix", "!nothing:localhost")
        self._rooms = rooms
        self._us = Person(rooms.alice.homeserver_client, account)
        self._alice = rooms.alice
        self._proxy = proxy
        self._starts = {rooms.private.chat_id: rooms.alice.end_of(rooms.private.chat_id)}
        self._is_limited = False

    @property
    def group(self) -> Address:
        group = self._rooms.group
        if group.chat_id not in self._starts:
            self._starts[group.chat_id] = self._alice.end_of(group.chat_id)
        return group

    @property
    def thread(self) -> Address:
        return Address("matrix", self.group.chat_id, "thread", self._rooms.thread)

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        mentions = {"user_ids": [self._us.user_id]} if addressed and at.chat_type != "private" else {}
        relation = {"m.relates_to": {"rel_type": "m.thread", "event_id": at.thread_id}} if at.thread_id else {}
        await asyncio.to_thread(self._alice.say, at.chat_id, text, **{"m.mentions": mentions}, **relation)

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        url = await self._proxy.upload(data, self._alice.token)
        await asyncio.to_thread(self._alice.post, at.chat_id, {"msgtype": "m.file", "body": name, "url": url})

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        relation = {"rel_type": "m.annotation", "event_id": message_id, "key": label}
        await asyncio.to_thread(self._alice.post, at.chat_id, {"m.relates_to": relation}, "m.reaction")

    async def reacts(self, at: Address, message_id: str, emoji: str) -> None:
        await self.presses(at, message_id, emoji)

    async def own_reactions(self, at: Address, message_id: str) -> list[str]:
        events = await self._events(at, "m.reaction")
        ours = [_relation(one) for one in events if one["sender"] == self._us.user_id]
        return [one["key"] for one in ours if one.get("event_id") == message_id]

    async def redelivers(self) -> bool:
        return False

    async def seen(self, at: Address) -> list[VisibleMessage]:
        events, reactions = await self._events(at, "m.room.message"), await self._events(at, "m.reaction")
        ours = [one for one in events if one["sender"] == self._us.user_id]
        here = [one for one in ours if _thread(one) == at.thread_id and _relation(one).get("rel_type") != "m.replace"]
        edits = {_relation(one)["event_id"]: one for one in ours if _relation(one).get("rel_type") == "m.replace"}
        return [self._seen(one, edits.get(one["event_id"]), reactions) for one in here]

    async def _events(self, at: Address, kind: str) -> list[Json]:
        return await asyncio.to_thread(self._alice.events, at.chat_id, kind, since=self._starts[at.chat_id])

    def _seen(self, event: Json, edit: Json | None, reactions: list[Json]) -> VisibleMessage:
        content = edit["content"]["m.new_content"] if edit else event["content"]
        is_file = content["msgtype"] != "m.text"
        pressed = [_relation(one) for one in reactions if one["sender"] == self._us.user_id]
        return VisibleMessage(
            message_id=event["event_id"],
            text="" if is_file else content["body"],
            reply_to=_relation(event).get("m.in_reply_to", {}).get("event_id", ""),
            buttons=tuple(one["key"] for one in pressed if one.get("event_id") == event["event_id"]),
            files=(content["filename"],) if is_file else (),
        )

    async def disrupt(self, failure: FailureKind) -> bool:
        if failure == "revoked":
            await asyncio.to_thread(self._us.call, "POST", "/logout", {})
        elif failure == "cut":
            self._proxy.cut()
        elif failure == "slow_down":
            await asyncio.to_thread(self._limit, "POST")
            self._is_limited = True
        else:
            self._proxy.failure = failure
        return True

    async def calm(self) -> None:
        self._proxy.failure = None
        if self._is_limited:
            await asyncio.to_thread(self._limit, "DELETE")
            self._is_limited = False

    def _limit(self, method: str) -> None:
        admin = self._rooms.admin
        path = f"/_synapse/admin/v1/users/{self._us.user_id}/override_ratelimit"
        limit = {"messages_per_second": 1, "burst_count": 0}
        admin.homeserver_client.call(method, path, limit, token=admin.token)


@asynccontextmanager
async def matrix_far_side(rooms: SharedRooms, folder: Path) -> AsyncIterator[MatrixFarSide]:
    """Open a proxy for a new device of the bot account, and close it at the end."""
    homeserver_client = rooms.alice.homeserver_client
    account = await asyncio.to_thread(homeserver_client.log_in, rooms.account)
    proxy = FaultyProxy(homeserver_client.url)
    try:
        bot_account = BotAccount(HomeserverClient(await proxy.open()), account, folder)
        platform = bot_account.open(patience=timedelta(seconds=5), file_limit=100_000)
        far_side = await asyncio.to_thread(MatrixFarSide, platform, account, rooms, proxy)
        try:
            yield far_side
        finally:
            await far_side.calm()
    finally:
        await proxy.close()


def _relation(event: Json) -> Json:
    found: Json = event["content"].get("m.relates_to", {})
    return found


def _thread(event: Json) -> str:
    relation = _relation(event)
    return str(relation["event_id"]) if relation.get("rel_type") == "m.thread" else ""

"""A strict Discord server on loopback: HTTP API and gateway, with simulated people."""

import asyncio
import re
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self

import msgspec
from aiohttp import BodyPartReader, web
from msgspec import Struct, field

from talaria.testing.discord_server.channels import ANNOUNCEMENTS, DIRECT, FORUM, TEXT, Ids, Person, StoredChannel
from talaria.testing.discord_server.forms import FILE_LIMIT, DiscordRefusal, bad_form, unauthorized
from talaria.testing.discord_server.gateway import Gateway
from talaria.testing.discord_server.methods import METHODS, UNAUTHENTICATED, Method, Request, Upload
from talaria.testing.discord_server.world import Room, World

TOKEN = "MTAwMDAwMDAwMDAwMDAwMDAx.loopback.token-for-tests-only"  # noqa: S105 - of a bot that exists in tests only
_UPLOAD = re.compile(r"files\[(\d+)\]")
_KINDS = {"text": TEXT, "announcements": ANNOUNCEMENTS, "forum": FORUM}


class Call(Struct, frozen=True):
    """An answered request: its parameters and its whole answer."""

    method: str
    path: str
    body: Any
    status: int
    answer: Any


class Fault(Struct):
    """A fault of a method, for so many calls."""

    method: Method
    status: int
    times: int = 1
    retry_after: float = 0.0
    scope: str = "user"


class Limit(Struct):
    """A rate limit of a method per channel; ``used`` are the times of the latest calls."""

    count: int
    seconds: float
    used: dict[str, list[float]] = field(default_factory=dict)

    def take(self, channel: str, now: float) -> tuple[int, float]:
        """Count a call; return how many are left, below zero for too many, and when all are again."""
        recent = [one for one in self.used.get(channel, []) if now - one < self.seconds]
        left = self.count - len(recent) - 1
        self.used[channel] = [*recent, now] if left >= 0 else recent
        return left, self.seconds - (now - self.used[channel][0])


class DiscordServer:
    """A Discord at a free port of loopback; ``async with`` starts and ends it.

    There is one guild, ``world.guild``. ``heartbeat`` is the heartbeat interval in seconds. ``calls`` has all answered
    requests, in order; ``gateway`` breaks connections and ends sessions, ``world`` has commands and interactions.
    """

    def __init__(self, *, token: str = TOKEN, heartbeat: float = 10.0) -> None:
        ids = Ids()
        self.token = token
        self.bot = Person(ids.next(), "talaria", "Talaria", bot=True)
        self.calls: list[Call] = []
        self.gateway = Gateway(token, self.bot, heartbeat)
        self.world = World(self.gateway, self.bot, ids)
        self._port = 0
        self._faults: list[Fault] = []
        self._limits: dict[Method, Limit] = {}
        application = web.Application(client_max_size=FILE_LIMIT * 12)
        for (verb, path), method in METHODS.items():
            application.router.add_route(verb, f"/api/v10{path}", partial(self._answer, path, method))
        application.router.add_get("/gateway", self.gateway.connected)
        application.router.add_get("/cdn/{channel}/{file}", self._download)
        self._runner = web.AppRunner(application, handler_cancellation=True, access_log=None, shutdown_timeout=0.01)

    @property
    def url(self) -> str:
        """Return where to reach it."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def api_url(self) -> str:
        """Return where its HTTP interface is."""
        return f"{self.url}/api/v10"

    async def __aenter__(self) -> Self:
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()
        self._port = self._runner.addresses[0][1]
        self.gateway.public_url = self.url
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.gateway.drop()
        await self._runner.cleanup()

    def user(self, name: str) -> Person:
        """Return the person of that name."""
        return self.world.person(name)

    def private(self, person: Person) -> Room:
        """Return a person's private chat with the bot."""
        for channel in self.world.channels.values():
            if channel.type == DIRECT and person in channel.people:
                return Room(self.world, channel)
        return self._add_channel(StoredChannel(id=self.world.ids.next(), type=DIRECT, people=[person]))

    def channel(self, name: str, kind: Literal["text", "announcements", "forum"] = "text") -> Room:
        """Open a channel or a forum in the server."""
        return self._add_channel(
            StoredChannel(id=self.world.ids.next(), type=_KINDS[kind], name=name, guild_id=self.world.guild)
        )

    def room(self, channel_id: str) -> Room:
        """Return a channel by its id, for example a thread that the bot opened."""
        return Room(self.world, self.world.channels[channel_id])

    def fail(
        self, method: Method, status: int, times: int = 1, *, retry_after: float = 0.0, scope: str = "user"
    ) -> None:
        """Let a method fail; status 0 lets it never be answered, 429 asks for a pause."""
        self._faults.append(Fault(method, status, times, retry_after, scope))

    def limit(self, method: Method, count: int, seconds: float) -> None:
        """Limit a method to so many calls in so many seconds per channel, and report it as Discord does."""
        self._limits[method] = Limit(count, seconds)

    def revoke(self) -> None:
        """Revoke the bot's token."""
        self.token = self.gateway.token = ""

    def drop_connections(self) -> None:
        """Break all connections that clients have open now."""
        for connection in self._runner.server.connections if self._runner.server else []:
            if connection.transport is not None:
                connection.transport.abort()

    def recover(self) -> None:
        """Clear all faults; a revoked token stays revoked."""
        self._faults.clear()
        self.gateway.deaf = False

    def _add_channel(self, channel: StoredChannel) -> Room:
        self.world.channels[channel.id] = channel
        return Room(self.world, channel)

    async def _answer(self, path: str, method: Method, request: web.Request) -> web.StreamResponse:
        body: Any = None
        limit_headers = {"X-RateLimit-Limit": "50", "X-RateLimit-Remaining": "49", "X-RateLimit-Reset-After": "5"}
        try:
            read = await _read(request)
            body = read.body
            if method not in UNAUTHENTICATED and request.headers.get("Authorization") != f"Bot {self.token or '-'}":
                raise unauthorized()
            await self._apply_fault(method)
            limit_headers |= self._apply_limit(method, request.match_info.get("channel_id", ""))
            status, answer = await method(self.world, read)
        except DiscordRefusal as refused:
            status, answer = refused.status, refused.body
        self.calls.append(Call(request.method, path, body, status, answer))
        headers = {"Via": "1.1 loopback"}
        if status == 429:
            headers |= {"Retry-After": str(answer["retry_after"]), "X-RateLimit-Scope": _choose_scope(answer)}
        else:
            headers |= limit_headers | {"X-RateLimit-Reset": "1", "X-RateLimit-Bucket": method.__name__}
        if status == 204:
            return web.Response(status=204, headers=headers)
        return web.Response(
            status=status, body=msgspec.json.encode(answer), content_type="application/json", headers=headers
        )

    def _apply_limit(self, method: Method, channel: str) -> dict[str, str]:
        limit = self._limits.get(method)
        if limit is None:
            return {}
        left, after = limit.take(channel, asyncio.get_running_loop().time())
        if left < 0:
            raise DiscordRefusal(
                429, 0, "You are being rate limited.", **{"retry_after": round(after, 3), "global": False}
            )
        return {
            "X-RateLimit-Limit": str(limit.count),
            "X-RateLimit-Remaining": str(left),
            "X-RateLimit-Reset-After": f"{after:.3f}",
        }

    async def _apply_fault(self, method: Method) -> None:
        fault = next((one for one in self._faults if one.method is method and one.times > 0), None)
        if fault is None:
            return
        fault.times -= 1
        if not fault.status:
            await asyncio.Event().wait()
        if fault.status == 429:
            more = {"retry_after": fault.retry_after, "global": fault.scope == "global"}
            raise DiscordRefusal(429, 0, "You are being rate limited.", **more)
        raise DiscordRefusal(fault.status, 0, f"{fault.status}: requested by the test")

    async def _download(self, request: web.Request) -> web.Response:
        file = self.world.file(request.match_info["channel"], request.match_info["file"])
        if file is None:
            return web.Response(status=404)
        return web.Response(body=file.data, content_type=file.content_type)


async def _read(request: web.Request) -> Request:
    body, uploads = None, {}
    if request.content_type == "multipart/form-data":
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            data = bytes(await part.read())
            if part.name == "payload_json":
                body = msgspec.json.decode(data)
            elif found := _UPLOAD.fullmatch(part.name or ""):
                kind = part.headers.get("Content-Type", "application/octet-stream")
                uploads[found[1]] = Upload(part.filename or "", data, kind)
            else:
                raise bad_form(part.name or "", "Unknown field")
    elif request.can_read_body:
        try:
            body = msgspec.json.decode(await request.read())
        except msgspec.DecodeError as error:
            raise DiscordRefusal(400, 50109, "The request body contains invalid JSON.") from error
    return Request(dict(request.match_info), dict(request.query), body, uploads)


def _choose_scope(answer: dict[str, Any]) -> str:
    return "global" if answer["global"] else "user"

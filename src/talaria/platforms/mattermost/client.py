"""Calls of Mattermost's REST API and its websocket, with time-outs and our error types."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from typing import TypeVar

import aiohttp
import msgspec

from talaria.core.errors import BadCredentials, ProviderError, Unreachable
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import Timeouts
from talaria.platforms.mattermost.settings import MattermostSettings
from talaria.platforms.mattermost.wire import SocketEvent, to_error

T = TypeVar("T")
_OK = (200, 201)
_MAX_ANSWER = 16 * 1024 * 1024  # a page of 1000 posts


class MattermostClient:
    """The account of a token on a server; the creator closes it."""

    def __init__(self, settings: MattermostSettings) -> None:
        self._settings = settings
        self._pool = HttpPool()

    async def get(self, path: str, answer: type[T]) -> T:
        """Return the answer to a query."""
        return self.decode(await self.request("GET", path), answer)

    async def post(
        self, path: str, body: Mapping[str, object], answer: type[T], method: str = "POST", *, has_key: bool = False
    ) -> T:
        """Return the answer to a request with a body; ``has_key`` means that it may be repeated."""
        headers, encoded = {"content-type": "application/json"}, msgspec.json.encode(body)
        return self.decode(await self.request(method, path, encoded, headers, has_key=has_key), answer)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        patience: timedelta | None = None,
        limit: int = _MAX_ANSWER,
        has_key: bool = False,
    ) -> bytes:
        """Return the body of the answer; a POST without a key isn't sent again if the connection is lost."""
        repeats = has_key or method != "POST"
        limit_of_time = patience or self._settings.patience
        timeouts = Timeouts(self._settings.patience, limit_of_time, limit_of_time)
        url = f"{self._settings.server}/api/v4{path}"
        sent = {"authorization": f"Bearer {self._settings.token}", **(headers or {})}
        try:
            async with self._pool.request(method, url, body, sent, timeouts, repeats=repeats) as answer:
                if answer.status not in _OK:
                    raise to_error(answer.status, await answer.body(_MAX_ANSWER), answer.headers)
                return await answer.body(limit)
        except ProviderError as error:  # of the HTTP client, which model providers share
            raise Unreachable(f"the Mattermost server can't be reached: {error}") from error

    @asynccontextmanager
    async def open_socket(self) -> AsyncIterator["MattermostSocket"]:
        """Open the websocket and log in."""
        url = f"{self._settings.server.replace('http', 'ws', 1)}/api/v4/websocket"
        seconds = self._settings.patience.total_seconds()
        try:
            async with aiohttp.ClientSession(trust_env=True) as session:
                async with asyncio.timeout(seconds):
                    socket = await session.ws_connect(url, max_msg_size=_MAX_ANSWER, autoping=True)
                async with socket:
                    opened = MattermostSocket(socket, self._settings.silence.total_seconds())
                    await opened.log_in(self._settings.token, seconds)
                    yield opened
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"the websocket of the Mattermost server can't be used: {error}") from error

    def decode(self, body: bytes, answer: type[T]) -> T:
        """Return a decoded answer; raises `Unreachable` if it is not one of this API."""
        try:
            return msgspec.json.decode(body, type=answer)
        except msgspec.DecodeError as error:
            raise Unreachable(f"the answer is not that of a Mattermost server: {error}") from error

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()


class MattermostSocket:
    """The websocket. A server that says nothing for ``silence`` seconds, not even after a ping, is given up."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, silence: float) -> None:
        self._socket = socket
        self._silence = silence
        self._sequence = count(1)

    async def log_in(self, token: str, seconds: float) -> None:
        """Send the token and wait until the server has accepted it."""
        number = next(self._sequence)
        await self._socket.send_json({"seq": number, "action": "authentication_challenge", "data": {"token": token}})
        try:
            async with asyncio.timeout(seconds):
                while (answer := await self._receive()).seq_reply != number:
                    pass
        except TimeoutError as error:
            raise Unreachable("the Mattermost server doesn't answer on its websocket") from error
        if answer.status != "OK":
            raise BadCredentials("the Mattermost server doesn't accept the token on its websocket")

    async def next_event(self) -> SocketEvent:
        """Return the next event."""
        asked = False
        while True:
            try:
                async with asyncio.timeout(self._silence / 2):
                    event = await self._receive()
            except TimeoutError:
                if asked:
                    raise Unreachable("the Mattermost server has been silent for too long") from None
                asked = True
                await self._socket.send_json({"seq": next(self._sequence), "action": "ping"})
                continue
            asked = False
            if event.event:
                return event

    async def _receive(self) -> SocketEvent:
        message = await self._socket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise Unreachable("the Mattermost server closed the websocket")
        try:
            return msgspec.json.decode(message.data, type=SocketEvent)
        except msgspec.DecodeError:
            return SocketEvent()

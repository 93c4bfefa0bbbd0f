"""The peers of webhooks: one program posts events, one receives replies; both compute signatures themselves."""

import asyncio
import base64
import hashlib
import hmac
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
from aiohttp import ClientSession, ClientTimeout, web

from talaria.testing.wait import LIMIT, until

SECRET = "whsec_" + base64.b64encode(b"a secret of twenty-four.").decode()
PATIENCE = LIMIT


def mac(secret: str, content: bytes) -> bytes:
    key = base64.b64decode(secret.removeprefix("whsec_")) if secret.startswith("whsec_") else secret.encode()
    return hmac.new(key, content, hashlib.sha256).digest()


def standard(body: bytes, number: str, *, secret: str = SECRET, at: float | None = None) -> dict[str, str]:
    """Return signature headers as standardwebhooks.com defines them."""
    when = str(int(time.time() if at is None else at))
    signature = base64.b64encode(mac(secret, f"{number}.{when}.".encode() + body)).decode()
    return {"webhook-id": number, "webhook-timestamp": when, "webhook-signature": f"v1,{signature}"}


async def post(url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, dict[str, Any], Mapping[str, str]]:
    """Post once and return status, answer and headers."""
    async with (
        ClientSession(timeout=ClientTimeout(total=PATIENCE)) as http,
        http.post(url, data=body, headers={"content-type": "application/json", **headers}) as answer,
    ):
        raw = await answer.read()
        return answer.status, msgspec.json.decode(raw, type=dict[str, Any]) if raw else {}, answer.headers


@dataclass
class Received:
    """A reply with a valid signature."""

    key: str
    body: dict[str, Any]


@dataclass
class Receiver:
    """Stores replies, each once, and refuses those that aren't signed with the secret."""

    url: str = ""
    secret: str = SECRET
    answer: Callable[[], int] = lambda: 204
    replies: list[Received] = field(default_factory=list)
    posts: list[Mapping[str, str]] = field(default_factory=list)
    refused: int = 0
    _keys: set[str] = field(default_factory=set)
    _calm: asyncio.Event = field(default_factory=asyncio.Event)
    _transports: set[asyncio.Transport] = field(default_factory=set)

    def texts(self, conversation: str = "") -> list[str]:
        return [one.body["text"] for one in self.replies if one.body["conversation"] == conversation]

    async def until(self, count: int) -> None:
        """Wait until this many replies have arrived."""
        await until(lambda: len(self.replies) >= count)

    def hang_up(self) -> None:
        for transport in self._transports:
            transport.abort()

    def calm(self) -> None:
        self.answer = lambda: 204
        self._calm.set()
        self._calm = asyncio.Event()

    async def receive(self, request: web.Request) -> web.Response:
        raw, headers = await request.read(), request.headers
        if isinstance(request.transport, asyncio.Transport):
            self._transports.add(request.transport)
        self.posts.append(dict(headers))
        status = self.answer()
        if status == 0:
            await self._calm.wait()
            return web.Response(status=500)
        if status >= 300:  # a negative status stores the reply and never confirms it
            return web.Response(status=status, headers={"retry-after": "7"} if status == 429 else {})
        content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + raw
        signature = "v1," + base64.b64encode(mac(self.secret, content)).decode()
        recent = abs(time.time() - int(headers["webhook-timestamp"])) < 60
        if not (recent and hmac.compare_digest(signature, headers["webhook-signature"])):
            self.refused += 1
            return web.Response(status=401)
        key = headers["idempotency-key"]
        if key not in self._keys:
            self._keys.add(key)
            self.replies.append(Received(key, msgspec.json.decode(raw)))
        if status < 0:
            await self._calm.wait()
            return web.Response(status=500)
        return web.Response(status=status)


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    """Receive replies at a port of loopback."""
    there = Receiver()
    app = web.Application()
    app.router.add_post("/replies", there.receive)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    there.url = f"http://127.0.0.1:{runner.addresses[0][1]}/replies"
    try:
        yield there
    finally:
        there.calm()
        await runner.cleanup()

"""A network that calls an adapter: posts signed bodies one after the other, and issues signed tokens (JWT)."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import jwt
from aiohttp import ClientError, ClientSession, ClientTimeout, web
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

_PAUSE = 0.02
_TIMEOUT = ClientTimeout(total=30)
Post = tuple[bytes, Mapping[str, str]]  # body and headers
LIFE = 3600  # seconds


class WebhookSender:
    """Posts in order; ``make`` returns body and headers for an item, and whether it was tried before.

    ``address`` returns where to post; an empty one means that nobody has registered yet. A sender that ``retries`` not
    posts everything once.
    """

    def __init__(
        self, make: Callable[[object, bool], Post], address: Callable[[], str], *, retries: bool = True
    ) -> None:
        self._retries = retries
        self._make = make
        self._address = address
        self._items: deque[object] = deque()
        self._more = asyncio.Event()
        self._last: object = None
        self.accepted = 0
        self.hangs_up = False

    def add(self, item: object) -> None:
        """Post an item after the others."""
        self._items.append(item)
        self._last = item
        self._more.set()

    def repeat(self) -> None:
        """Post the last item once more, as a network does that missed the answer."""
        self._items.append(self._last)
        self._more.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Post in the background within the block."""
        posting = asyncio.ensure_future(self._run())
        try:
            yield
        finally:
            posting.cancel()
            with suppress(asyncio.CancelledError):
                await posting

    async def _run(self) -> None:
        async with ClientSession(timeout=_TIMEOUT) as session:
            while True:
                while not self._items:
                    self._more.clear()
                    await self._more.wait()
                is_again = False
                while not (is_accepted := await self._post(session, self._items[0], is_again=is_again)):
                    if not self._retries:
                        break
                    is_again = True
                    await asyncio.sleep(_PAUSE)  # real time: a network tries again later
                self._items.popleft()
                self.accepted += is_accepted

    async def _post(self, session: ClientSession, item: object, *, is_again: bool) -> bool:
        url = self._address()
        if not url:
            return False
        body, headers = self._make(item, is_again)
        if self.hangs_up:
            self.hangs_up = False
            await self._break_off(url, body, headers)
            return False
        try:
            async with session.post(url, data=body, headers=dict(headers)) as response:
                await response.read()
                return response.status == 200
        except (ClientError, TimeoutError):
            return False

    async def _break_off(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Post, and be gone before the answer."""
        there = urlsplit(url)
        _, writer = await asyncio.open_connection(there.hostname, there.port)
        head = {"host": there.netloc, "content-length": str(len(body)), **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        writer.write(f"POST {there.path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
        await writer.drain()
        writer.transport.abort()


@asynccontextmanager
async def serve_application(application: web.Application) -> AsyncIterator[str]:
    """Serve on a free port of this machine, and yield the address."""
    runner = web.AppRunner(application, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


class JwtIssuer:
    """Signs with its newest key; ``fields`` are added to its published keys."""

    def __init__(self, fields: Mapping[str, Any] | None = None) -> None:
        self._fields = dict(fields or {})
        self._number = 0
        self.fetched = 0

    def rotate(self) -> None:
        """Replace the key: tokens are signed with another one, and the old one isn't published any more."""
        self._number += 1

    def key_set(self) -> dict[str, Any]:
        """Return the published keys."""
        self.fetched += 1
        public = RSAAlgorithm.to_jwk(make_rsa_key(self._number).public_key(), as_dict=True)
        return {"keys": [{**public, "kid": self._key_id, "use": "sig", **self._fields}]}

    def sign(self, claims: Mapping[str, Any], *, algorithm: str = "RS256", key_id: str = "") -> str:
        """Return a token that is valid for an hour, unless the claims differ."""
        now = int(time.time())
        full = {"nbf": now, "iat": now, "exp": now + LIFE, **claims}
        key: Any = make_rsa_key(self._number) if algorithm == "RS256" else "a secret of thirty-two characters"
        return jwt.encode(full, key, algorithm=algorithm, headers={"kid": key_id or self._key_id})

    @property
    def _key_id(self) -> str:
        return f"key-{self._number}"


@cache
def make_rsa_key(number: int) -> rsa.RSAPrivateKey:
    """Return a key, the same for all issuers of this process: making one takes long."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)

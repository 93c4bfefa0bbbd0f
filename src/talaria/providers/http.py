"""HTTP to model providers: one pool of connections, time-outs that mean something, our own errors."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from talaria.core.errors import MalformedReply, ProviderUnreachable
from talaria.providers.silence import SilenceWatch
from talaria.providers.sse import EventParser
from talaria.providers.timeouts import Timeouts

DRAIN_SECONDS = 0.2
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Answer:
    """An answer whose head is here and whose body is still coming."""

    def __init__(self, response: aiohttp.ClientResponse, first_byte_by: float, silence: float) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self.content_type = response.content_type
        self._body = response.content
        self._watch = SilenceWatch(response.content, first_byte_by, silence)
        self._events = EventParser()

    async def events(self) -> list[bytes] | None:
        """Return the data of the next events, at least one, or ``None`` at the end of the body."""
        while chunk := await self._read():
            if events := self._events.feed(chunk):
                return events
        return None

    async def body(self) -> bytes:
        """Return all of it."""
        chunks = []
        while chunk := await self._read():
            chunks.append(chunk)
        return b"".join(chunks)

    async def drain(self) -> None:
        """Read what is left, so that the connection can serve again; give up soon if the end does not come."""
        with suppress(TimeoutError, aiohttp.ClientError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while not self._body.at_eof():
                    await self._body.readany()

    def close(self) -> None:
        """Stop watching for silence."""
        self._watch.close()

    async def _read(self) -> bytes:
        try:
            return await self._watch.read()
        except TimeoutError as error:
            raise ProviderUnreachable("the provider fell silent") from error
        except aiohttp.ClientError as error:
            raise ProviderUnreachable(f"the connection broke: {_words(error)}") from error


class HttpPool:
    """Connections to all providers; made when first needed, and closed by whoever made the pool.

    Proxies come from the environment, as for any other program, except for this machine itself. They are looked up
    once for each host: aiohttp's own ``trust_env`` costs two trips to a thread for each request.
    """

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[str, str | None] = {}

    @asynccontextmanager
    async def post(
        self, url: str, body: bytes, headers: Mapping[str, str], timeouts: Timeouts
    ) -> AsyncGenerator[Answer, None]:
        """Send ``body``; leaving the block closes the connection, unless its answer was read to the end."""
        async with self._exchange("POST", url, body, headers, timeouts) as answer:
            yield answer

    @asynccontextmanager
    async def get(self, url: str, headers: Mapping[str, str], timeouts: Timeouts) -> AsyncGenerator[Answer, None]:
        """Ask for what stands at ``url``."""
        async with self._exchange("GET", url, None, headers, timeouts) as answer:
            yield answer

    async def close(self) -> None:
        """Close every connection; a later call opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    @asynccontextmanager
    async def _exchange(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], timeouts: Timeouts
    ) -> AsyncGenerator[Answer, None]:
        connect = timeouts.connect.total_seconds()
        first_byte_by = asyncio.get_running_loop().time() + connect + timeouts.first_byte.total_seconds()
        try:
            async with asyncio.timeout_at(first_byte_by):
                response = await self._open().request(
                    method,
                    url,
                    data=body,
                    headers=headers,
                    timeout=aiohttp.ClientTimeout(total=None, connect=connect),
                    proxy=self._proxy(url),
                    allow_redirects=False,
                )
        except aiohttp.ClientResponseError as error:
            raise MalformedReply(f"{url} does not speak HTTP: {_words(error)}") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise ProviderUnreachable(f"{url} does not answer: {_words(error)}") from error
        answer = Answer(response, first_byte_by, timeouts.silence.total_seconds())
        try:
            yield answer
        finally:
            answer.close()
            response.close()

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"Accept-Encoding": "identity", "User-Agent": "talaria"},
            )
        return self._session

    def _proxy(self, url: str) -> str | None:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        if origin not in self._proxies:
            bypassed = parts.hostname in {None, *LOOPBACK} or proxy_bypass(parts.netloc)
            self._proxies[origin] = None if bypassed else getproxies().get(parts.scheme)
        return self._proxies[origin]


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__

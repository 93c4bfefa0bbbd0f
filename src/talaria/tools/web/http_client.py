"""The HTTP client of `WebClient`, on aiohttp. Imported on first use."""

import asyncio
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from talaria.core.errors import ToolFailed
from talaria.tools.web.client import Download, Limits
from talaria.tools.web.ssrf_guard import Guard

_MOST_REDIRECTS = 5
_REDIRECTS = {301, 302, 303, 307, 308}
_HEADERS = {
    "User-Agent": "Mozilla/5.0 (compatible; Talaria)",
    "Accept": "text/html,application/xhtml+xml,application/pdf,text/*;q=0.9,*/*;q=0.5",
    "Accept-Language": "en,*;q=0.5",
}


class Fetcher:
    """Fetches from public servers and those in ``allowed``; owns its connections from first use to `close`."""

    def __init__(self, limits: Limits, allowed: AbstractSet[str], resolver: AbstractResolver | None) -> None:
        self._guard = Guard(allowed, resolver)
        self._limits = limits
        self._session: aiohttp.ClientSession | None = None

    async def get(self, url: str, query: Mapping[str, str]) -> Download:
        """Return the content of a URL, or raise `ToolFailed`."""
        seconds = self._limits.time.total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await self._follow(URL(url).update_query(query))
        except TimeoutError as error:
            raise ToolFailed(f"{url[:200]} didn't answer within {seconds:g} s") from error
        except (aiohttp.ClientError, ValueError) as error:
            raise ToolFailed(f"can't fetch {url[:200]}: {error}") from error

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _follow(self, url: URL) -> Download:
        for _ in range(_MOST_REDIRECTS + 1):
            answer = await self._ask(url)
            if isinstance(answer, Download):
                return answer
            url = answer
        raise ToolFailed(f"more than {_MOST_REDIRECTS} redirects; the last was to {url}")

    async def _ask(self, url: URL) -> Download | URL:
        self._guard.check(url)
        async with self._opened().get(url, allow_redirects=False) as response:
            location = response.headers.get("Location")
            if response.status in _REDIRECTS and location:
                return url.join(URL(location))
            if response.status >= 400:
                raise ToolFailed(f"{url} answered {response.status} {response.reason}")
            body = await self._read(response)
            return Download(str(url), response.content_type, response.charset or "", body)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for piece in response.content.iter_chunked(65_536):
            body += piece
            if len(body) > self._limits.size:
                raise ToolFailed(f"{response.url} is larger than {self._limits.size:,} bytes")
        return bytes(body)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=self._guard, limit_per_host=8),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=_HEADERS,
                timeout=aiohttp.ClientTimeout(total=None),
            )
        return self._session

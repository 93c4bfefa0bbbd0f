"""The HTTP client of `WebClient`, and the rules of robots.txt (RFC 9309). Imported on first use."""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from collections.abc import Set as AbstractSet
from datetime import timedelta
from http import HTTPStatus
from urllib.parse import quote, unquote, urljoin, urlsplit

from msgspec import Struct

from talaria.core.errors import ProviderError, ProviderUnreachable, ReplyTooLong, ToolFailed
from talaria.http_client.client import Answer, HttpPool
from talaria.http_client.connection import Timeouts, decode_content, read_url
from talaria.http_client.dial import Resolve, find_route
from talaria.tools.web.ssrf_guard import Guard

CheckUrl = Callable[[str], Awaitable[None]]
_MOST_REDIRECTS = 5
_REQUESTS_PER_SERVER = 8
_REDIRECTS = {301, 302, 303, 307, 308}
_HEADERS = {
    "User-Agent": "Mozilla/5.0 (compatible; Talaria)",
    "Accept": "text/html,application/xhtml+xml,application/pdf,text/*;q=0.9,*/*;q=0.5",
    "Accept-Language": "en,*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}
AGENT = "talaria"
_MOST_LINES = 20_000
_SAFE = "/?=&%:@!$'()*+,;~"


class Download(Struct, frozen=True):
    """A response; ``url`` is the address after redirects, ``charset`` the server's declaration, if any."""

    url: str
    media_type: str
    charset: str
    body: bytes


class ServerUnreachable(ToolFailed):
    """A server that can't be reached, doesn't answer in time, or has an error of its own (5xx)."""


class Fetcher:
    """Fetches from public servers and those in ``allowed``; owns its connections from first use to `close`.

    Limits are the size in bytes, decompressed, and the time of a request with all its redirects. Proxies come from the
    environment; what is asked of one is checked first, as far as names resolve here.
    """

    def __init__(
        self, size_limit: int, time_limit: timedelta, allowed: AbstractSet[str], resolve: Resolve | None
    ) -> None:
        self._guard = Guard(allowed, resolve)
        self._size_limit = size_limit
        self._time_limit = time_limit
        self._timeouts = Timeouts(connect=time_limit, first_byte=time_limit, silence=time_limit)
        self._pool = HttpPool(resolve=self._guard.resolve)
        self._slots: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(_REQUESTS_PER_SERVER))

    async def get(self, url: str, check: CheckUrl | None = None) -> Download:
        """Return the content of a URL, or raise `ToolFailed`; ``check`` is called for it and for each redirect."""
        seconds = self._time_limit.total_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await self._follow(url.strip(), check)
        except TimeoutError as error:
            raise ServerUnreachable(f"{url[:200]} didn't answer within {seconds:g} s") from error
        except ProviderUnreachable as error:
            raise ServerUnreachable(f"can't fetch {url[:200]}: {error.cause}. {error.remedy}".rstrip(" .")) from error
        except ProviderError as error:
            raise ServerUnreachable(f"can't fetch {url[:200]}: {error}") from error
        except ValueError as error:
            raise ToolFailed(f"can't fetch {url[:200]}: {error}") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.close()

    async def _follow(self, url: str, check: CheckUrl | None) -> Download:
        for _ in range(_MOST_REDIRECTS + 1):
            if check is not None:
                await check(url)
            answer = await self._ask(url)
            if isinstance(answer, Download):
                return answer
            url = answer
        raise ToolFailed(f"more than {_MOST_REDIRECTS} redirects; the last was to {url}")

    async def _ask(self, url: str) -> Download | str:
        """Return the content of a URL, or the URL that it redirects to."""
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.port == 0:
            raise ToolFailed(f"only http:// and https:// URLs can be fetched, not {url[:200]!r}")
        server, _ = read_url(url)
        if find_route(server).proxy is None:
            self._guard.check(server)
        else:
            await self._guard.check_through_proxy(server)
        async with self._slots[server.authority], self._pool.get(url, _HEADERS, self._timeouts) as answer:
            location = answer.headers.get("location")
            if answer.status in _REDIRECTS and location:
                await answer.drain()
                return urljoin(url, location)
            if answer.status >= 400:
                problem = ServerUnreachable if answer.status >= 500 else ToolFailed
                raise problem(f"{url} answered {answer.status} {_find_phrase(answer.status)}".rstrip())
            body = await self._read(url, answer)
            media_type = answer.content_type or "application/octet-stream"
            return Download(url, media_type, _parse_charset(answer.headers.get("content-type", "")), body)

    async def _read(self, url: str, answer: Answer) -> bytes:
        limit = self._size_limit
        too_large = f"{url} is larger than {limit:,} bytes"
        try:
            raw = await answer.body(limit)
        except ReplyTooLong as error:
            raise ToolFailed(too_large) from error
        body = decode_content(raw, answer.headers.get("content-encoding", ""), limit)
        if len(body) > limit:
            raise ToolFailed(too_large)
        return body


class RobotsRule(Struct, frozen=True):
    """A path pattern, and whether it allows or forbids."""

    pattern: str
    allows: bool


class RobotsRules(Struct, frozen=True):
    """The rules of a server for this program; without any, everything is allowed."""

    rules: tuple[RobotsRule, ...] = ()

    def is_allowed(self, url: str) -> bool:
        """Return whether a URL may be fetched: the longest matching pattern decides, and an equal one allows."""
        parts = urlsplit(url)
        path = _normalize(f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/")
        matching = [rule for rule in self.rules if _matches(rule.pattern, path)]
        best = max(matching, key=lambda rule: (len(rule.pattern), rule.allows), default=None)
        return best is None or best.allows


def parse_robots(text: str) -> RobotsRules:
    """Return the rules of all groups for this program, or else of those for all programs."""
    own: list[RobotsRule] = []
    general: list[RobotsRule] = []
    has_own, agents, is_open = False, set[str](), False
    for key, value in _iterate_lines(text):
        if key == "user-agent":
            agents = {*agents, value.lower()} if is_open else {value.lower()}
            is_open = True
            has_own = has_own or AGENT in agents
        elif key in {"allow", "disallow"}:
            is_open = False
            if value:
                rule = RobotsRule(_normalize(value), key == "allow")
                own += [rule] if AGENT in agents else []
                general += [rule] if "*" in agents else []
    return RobotsRules(tuple(own if has_own else general))


def _parse_charset(content_type: str) -> str:
    for parameter in content_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'").lower()
    return ""


def _find_phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""


def _iterate_lines(text: str) -> Iterator[tuple[str, str]]:
    for line in text.removeprefix("\ufeff").splitlines()[:_MOST_LINES]:
        key, _, value = line.partition("#")[0].partition(":")
        yield key.strip().lower(), value.strip()


def _normalize(path: str) -> str:
    """Return a path or pattern in one form of percent-encoding."""
    return quote(unquote(path, errors="surrogateescape"), safe=_SAFE, errors="surrogateescape")


def _matches(pattern: str, path: str) -> bool:
    """Return whether a path begins with a pattern, in which ``*`` is any text and a final ``$`` the end."""
    is_whole = pattern.endswith("$")
    first, *others = pattern.removesuffix("$").split("*")
    if not path.startswith(first):
        return False
    position = len(first)
    for part in others:
        found = path.find(part, position)
        if found < 0:
            return False
        position = found + len(part)
    if not is_whole or position == len(path):
        return True
    last = others[-1] if others else None
    return last is not None and path.endswith(last) and len(path) - len(last) >= position - len(last)

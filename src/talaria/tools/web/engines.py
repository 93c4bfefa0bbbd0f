"""Web search engines as data: where to ask, how to authenticate, and one parser each. Imported with the first search.

To add an engine, add an entry to `ENGINES`, its name to `SEARCH_ENGINES` of the settings, and its key to the secrets.
"""

import asyncio
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from html import unescape
from typing import TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from talaria.core.errors import ProviderError, ProviderUnreachable
from talaria.http_client.client import Answer, HttpPool
from talaria.http_client.connection import Timeouts
from talaria.tools.web.search import EngineAccount, EngineFailed, SearchResult

T = TypeVar("T")
_MAX_ANSWER = 4_000_000  # bytes
_USER_AGENT = "Mozilla/5.0 (compatible; Talaria)"
_OUT_OF_CREDIT = frozenset({402, 432, 433})  # the last two are Tavily's plan limits
_RATE_LIMIT_PAUSE = timedelta(minutes=1)
_PAUSE = timedelta(minutes=5)
_LONGEST_PAUSE = timedelta(hours=1)
_TAG = re.compile(r"<[^>]{1,200}>")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")


class SearchEngine(Struct, frozen=True, kw_only=True):
    """A search engine: ``parameters`` of a query go into the URL, or with ``post`` into a JSON body.

    An engine without a ``url`` needs an address from the settings. ``key_names`` are the
    usual names of its key, and ``key_header`` has ``{}`` in place of it.
    ``most`` is the largest number of results that can be requested.
    """

    name: str
    title: str
    parse: Callable[[bytes], list[SearchResult]]
    parameters: Callable[[str, int, EngineAccount], Mapping[str, object]]
    url: str = ""
    path: str = ""
    post: bool = False
    key_names: tuple[str, ...] = ()
    key_header: tuple[str, str] = ("", "")
    needs_engine_id: bool = False
    most: int = 20

    def find_gap(self, account: EngineAccount) -> str:
        """Return what is missing to use the engine; empty if nothing is."""
        if self.key_names and not account.key:
            return f"no key (set {self.key_names[0]})"
        if self.needs_engine_id and not account.engine_id:
            return "no search engine id (set web.google_engine_id)"
        if not (account.url or self.url):
            return f"no address (set web.addresses.{self.name})"
        return ""


async def ask_engine(http: HttpPool, account: EngineAccount, query: str, count: int) -> list[SearchResult]:
    """Return at most so many results, best first, or raise `EngineFailed`. Redirects are not followed."""
    engine = ENGINES[account.name]
    gap = engine.find_gap(account)
    if gap:
        raise EngineFailed(gap)
    method, url, headers, body = _build_request(engine, account, query, min(count, engine.most))
    try:
        async with http.request(method, url, body, headers, Timeouts()) as answer:
            content = await answer.body(_MAX_ANSWER)
    except ProviderUnreachable as error:  # its text has the URL, which may contain the key
        raise EngineFailed(f"not reachable: {error.cause}", _RATE_LIMIT_PAUSE, "unreachable") from error
    except ProviderError as error:
        raise EngineFailed("its answer can't be read", _PAUSE) from error
    _check_status(engine, answer, content)
    results = await asyncio.to_thread(engine.parse, content)
    return [result for result in results if result.url][:count]


def _build_request(
    engine: SearchEngine, account: EngineAccount, query: str, count: int
) -> tuple[str, str, dict[str, str], bytes | None]:
    """Return method, URL, headers and body."""
    parameters = engine.parameters(query, count, account)
    url = (account.url or engine.url).rstrip("/") + engine.path
    headers = {"User-Agent": _USER_AGENT, "Accept": "application/json" if engine.key_names else "*/*"}
    name, value = engine.key_header
    if name:
        headers[name] = value.format(account.key)
    if not engine.post:
        return "GET", f"{url}?{urlencode(parameters)}", headers, None
    headers["Content-Type"] = "application/json"
    return "POST", url, headers, msgspec.json.encode(parameters)


def _check_status(engine: SearchEngine, answer: Answer, content: bytes) -> None:
    status = answer.status
    if status == 200 or (status == 202 and not engine.key_names):  # DuckDuckGo's status of captchas
        return
    if status == 429:
        raise EngineFailed("rate-limited", _read_pause(answer.headers))
    if status in _OUT_OF_CREDIT or b"ot enough credits" in content[:300]:
        raise EngineFailed(f"out of credit (HTTP {status})", _PAUSE)
    if engine.key_names and (status in {401, 403} or _is_about_key(content)):
        raise EngineFailed(f"it rejected {engine.key_names[0]} (HTTP {status})", _PAUSE, "refused")
    if not engine.key_names and status == 403:
        hint = "blocked" if engine.url else "forbidden; `search.formats` of its settings needs `json`"
        raise EngineFailed(f"{hint} (HTTP 403)", _PAUSE)
    raise EngineFailed(f"HTTP {status}", _RATE_LIMIT_PAUSE if status >= 500 else timedelta())


def _is_about_key(content: bytes) -> bool:
    """Return whether an error with a general status is about the key: Brave answers 422, Google 400."""
    return any(code in content[:2_000] for code in (b"SUBSCRIPTION_TOKEN_INVALID", b"keyInvalid", b"API_KEY_INVALID"))


def _read_pause(headers: Mapping[str, str]) -> timedelta:
    """Return how long to wait: ``Retry-After`` in seconds, or the first value of Brave's ``X-RateLimit-Reset``."""
    text = headers.get("retry-after") or headers.get("x-ratelimit-reset", "").partition(",")[0]
    try:
        seconds = float(text.strip())
    except ValueError:
        return _RATE_LIMIT_PAUSE
    if not 0 < seconds < _LONGEST_PAUSE.total_seconds():  # also for "nan"
        return _LONGEST_PAUSE if seconds > 0 else _RATE_LIMIT_PAUSE
    return timedelta(seconds=seconds)


def _decode(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise EngineFailed("its answer can't be read", _RATE_LIMIT_PAUSE) from error


def _strip_tags(html: str | None) -> str:
    return unescape(_TAG.sub("", html or ""))


def _format_day(text: str | None) -> str:
    """Return an ISO time as its day, and other dates as they are."""
    found = _DAY.match(text or "")
    return found[0] if found else text or ""


class _BraveResult(Struct):
    url: str
    title: str = ""
    description: str | None = None
    page_age: str | None = None
    age: str | None = None


class _BraveWeb(Struct):
    results: list[_BraveResult] = []


class _BraveAnswer(Struct):
    web: _BraveWeb | None = None


def parse_brave(content: bytes) -> list[SearchResult]:
    """Return the results of Brave's web search; without any, it leaves the section out."""
    web = _decode(content, _BraveAnswer).web or _BraveWeb()
    return [
        SearchResult(
            _strip_tags(one.title), one.url, _strip_tags(one.description), _format_day(one.page_age or one.age)
        )
        for one in web.results
    ]


class _TavilyResult(Struct):
    url: str
    title: str | None = None
    content: str | None = None
    published_date: str | None = None


class _TavilyAnswer(Struct):
    results: list[_TavilyResult]


def parse_tavily(content: bytes) -> list[SearchResult]:
    """Return the results of Tavily."""
    return [
        SearchResult(one.title or "", one.url, one.content or "", _format_day(one.published_date))
        for one in _decode(content, _TavilyAnswer).results
    ]


class _ExaResult(Struct, rename="camel"):
    url: str
    title: str | None = None
    published_date: str | None = None
    highlights: list[str] | None = None
    text: str | None = None


class _ExaAnswer(Struct):
    results: list[_ExaResult]


def parse_exa(content: bytes) -> list[SearchResult]:
    """Return the results of Exa, with their highlights as snippets."""
    return [
        SearchResult(
            one.title or "",
            one.url,
            " … ".join(one.highlights or ()) or one.text or "",
            _format_day(one.published_date),
        )
        for one in _decode(content, _ExaAnswer).results
    ]


class _LinkResult(Struct):
    link: str
    title: str = ""
    snippet: str | None = None
    date: str | None = None
    pagemap: dict[str, list[dict[str, object]]] = {}


class _SerperAnswer(Struct):
    organic: list[_LinkResult] = []


def parse_serper(content: bytes) -> list[SearchResult]:
    """Return the organic results of Serper."""
    return [
        SearchResult(one.title, one.link, one.snippet or "", _format_day(one.date))
        for one in _decode(content, _SerperAnswer).organic
    ]


class _GoogleAnswer(Struct):
    items: list[_LinkResult] = []


def parse_google(content: bytes) -> list[SearchResult]:
    """Return the results of Google's Custom Search JSON API, with dates from the pages' own metadata."""
    return [
        SearchResult(one.title, one.link, one.snippet or "", _find_published(one))
        for one in _decode(content, _GoogleAnswer).items
    ]


def _find_published(one: _LinkResult) -> str:
    tags = next(iter(one.pagemap.get("metatags", ())), {})
    return _format_day(str(tags.get("article:published_time") or ""))


class _KagiResult(Struct):
    url: str
    title: str = ""
    snippet: str | None = None
    time: str | None = None


class _KagiData(Struct):
    search: list[_KagiResult] = []


class _KagiAnswer(Struct):
    data: _KagiData | None = None


def parse_kagi(content: bytes) -> list[SearchResult]:
    """Return the web results of Kagi."""
    data = _decode(content, _KagiAnswer).data or _KagiData()
    return [
        SearchResult(_strip_tags(one.title), one.url, _strip_tags(one.snippet), _format_day(one.time))
        for one in data.search
    ]


class _SearxngResult(Struct, rename="camel"):
    url: str
    title: str | None = None
    content: str | None = None
    published_date: str | None = None


class _SearxngAnswer(Struct):
    results: list[_SearxngResult]


def parse_searxng(content: bytes) -> list[SearchResult]:
    """Return the results of a SearXNG server."""
    return [
        SearchResult(one.title or "", one.url, one.content or "", _format_day(one.published_date))
        for one in _decode(content, _SearxngAnswer).results
    ]


def parse_duckduckgo(content: bytes) -> list[SearchResult]:
    """Return the results on DuckDuckGo's page for browsers without scripts, or raise if it shows a captcha instead."""
    from talaria.tools.web.html_text import has_captcha, list_results  # noqa: PLC0415 (needs an HTML parser)

    html = content.decode("utf-8", errors="replace")
    results = list_results(html)
    if not results and has_captcha(html):
        raise EngineFailed("blocked: it asks for a captcha", _PAUSE)
    return results


_BEARER = ("Authorization", "Bearer {}")

ENGINES: Mapping[str, SearchEngine] = {
    engine.name: engine
    for engine in (
        SearchEngine(
            name="brave",
            title="Brave",
            url="https://api.search.brave.com/res/v1",
            path="/web/search",
            key_names=("BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY"),
            key_header=("X-Subscription-Token", "{}"),
            parameters=lambda query, count, _: {"q": query, "count": count, "text_decorations": "false"},
            parse=parse_brave,
        ),
        SearchEngine(
            name="tavily",
            title="Tavily",
            url="https://api.tavily.com",
            path="/search",
            post=True,
            key_names=("TAVILY_API_KEY",),
            key_header=_BEARER,
            parameters=lambda query, count, _: {"query": query, "max_results": count},
            parse=parse_tavily,
        ),
        SearchEngine(
            name="exa",
            title="Exa",
            url="https://api.exa.ai",
            path="/search",
            post=True,
            key_names=("EXA_API_KEY",),
            key_header=("x-api-key", "{}"),
            parameters=lambda query, count, _: {
                "query": query,
                "numResults": count,
                "contents": {"highlights": True},
            },
            parse=parse_exa,
        ),
        SearchEngine(
            name="serper",
            title="Serper",
            url="https://google.serper.dev",
            path="/search",
            post=True,
            key_names=("SERPER_API_KEY",),
            key_header=("X-API-KEY", "{}"),
            parameters=lambda query, count, _: {"q": query, "num": count},
            parse=parse_serper,
        ),
        SearchEngine(
            name="google",
            title="Google",
            url="https://www.googleapis.com",
            path="/customsearch/v1",
            key_names=("GOOGLE_CSE_API_KEY",),
            needs_engine_id=True,
            parameters=lambda query, count, account: {
                "key": account.key,
                "cx": account.engine_id,
                "q": query,
                "num": count,
            },
            parse=parse_google,
            most=10,
        ),
        SearchEngine(
            name="kagi",
            title="Kagi",
            url="https://kagi.com/api/v1",
            path="/search",
            post=True,
            key_names=("KAGI_API_KEY",),
            key_header=_BEARER,
            parameters=lambda query, count, _: {"query": query, "workflow": "search", "limit": count},
            parse=parse_kagi,
        ),
        SearchEngine(
            name="searxng",
            title="SearXNG",
            path="/search",
            parameters=lambda query, _count, _: {"q": query, "format": "json"},
            parse=parse_searxng,
        ),
        SearchEngine(
            name="duckduckgo",
            title="DuckDuckGo",
            url="https://html.duckduckgo.com",
            path="/html/",
            parameters=lambda query, _count, _: {"q": query},
            parse=parse_duckduckgo,
        ),
    )
}

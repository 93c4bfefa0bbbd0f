"""Strict stand-ins for the vendors' search APIs on loopback, as their API descriptions define them."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from talaria.tools.web.search import EngineAccount

KEY = "key-of-0123456789"
ENGINE_ID = "0a1b2c"
URL = "https://bread.test/rye?a=1&b=2"
LISTING = """<html><head><title>anomaly.js at DuckDuckGo</title></head><body><div id="links" class="results">
<div class="result results_links results_links_deep result--ad"><h2 class="result__title">
 <a class="result__a" href="https://duckduckgo.com/y.js?ad_domain=shop.test">Buy bread</a></h2></div>
<div class="result results_links results_links_deep web-result"><div class="links_main links_deep result__body">
 <h2 class="result__title"><a rel="nofollow" class="result__a"
  href="//duckduckgo.com/l/?uddg=https%3A%2F%2Fbread.test%2Frye%3Fa%3D1%26b%3D2&amp;rut=0">Rye <b>bread</b></a></h2>
 <a class="result__snippet" href="//duckduckgo.com/l/?uddg=x">How to bake <b>rye</b>
  bread &amp; more.</a></div></div>
<div class="result web-result"><h2><a class="result__a" href="https://bread.test/wheat">Wheat</a></h2></div>
<div class="result web-result"><h2><a class="result__a" href="javascript:x()">Odd</a></h2></div>
<div class="result result--no-result"><span>No more results.</span></div>
</div></body></html>"""
CAPTCHA = """<html><body><form id="img-form" action="//duckduckgo.com/anomaly.js?sv=html&cc=botnet" method="POST">
<div class="anomaly-modal__title">Unfortunately, bots use DuckDuckGo too.</div></form></body></html>"""
Body = Mapping[str, Any]


@dataclass(frozen=True)
class Vendor:
    """Requirements of a vendor for requests, and its answers.

    ``key`` and ``parameters`` return a problem, empty if there is none; ``answer`` is its body for these parameters.
    """

    method: str
    path: str
    key: Callable[[web.BaseRequest], str]
    parameters: Callable[[Body], str]
    found: Any
    nothing: Any
    bad_key: tuple[int, Any]


def _header(name: str, value: str) -> Callable[[web.BaseRequest], str]:
    return lambda request: "" if request.headers.get(name) == value else f"{name} is wrong"


def _exactly(**kinds: Callable[[Any], bool]) -> Callable[[Body], str]:
    """Return a check for exactly these parameters."""

    def find_problem(parameters: Body) -> str:
        if set(parameters) != set(kinds):
            return f"parameters are {sorted(parameters)}"
        return next(
            (f"{name} is {parameters[name]!r}" for name, is_right in kinds.items() if not is_right(parameters[name])),
            "",
        )

    return find_problem


def _text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _number(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and low <= value <= high


def _digits(low: int, high: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value.isdecimal() and low <= int(value) <= high


def _is(expected: Any) -> Callable[[Any], bool]:
    return lambda value: value == expected


VENDORS = {
    "brave": Vendor(
        "GET",
        "/web/search",
        _header("X-Subscription-Token", KEY),
        _exactly(q=_text, count=_digits(1, 20), text_decorations=_is("false")),
        {
            "type": "search",
            "web": {
                "type": "search",
                "results": [
                    {
                        "title": "Rye bread",
                        "url": URL,
                        "description": "How to bake <strong>rye</strong> bread &amp; more.",
                        "page_age": "2026-02-03T04:05:06",
                        "age": "3 weeks ago",
                        "family_friendly": True,
                    },
                    {"title": "Wheat", "url": "https://bread.test/wheat", "description": "", "age": "2 days ago"},
                ],
            },
        },
        {"type": "search", "query": {"original": "x"}},
        (422, {"type": "ErrorResponse", "error": {"code": "SUBSCRIPTION_TOKEN_INVALID", "status": 422}}),
    ),
    "tavily": Vendor(
        "POST",
        "/search",
        _header("Authorization", f"Bearer {KEY}"),
        _exactly(query=_text, max_results=_number(1, 20)),
        {
            "query": "rye",
            "answer": None,
            "results": [
                {
                    "title": "Rye bread",
                    "url": URL,
                    "content": "How to bake rye bread & more.",
                    "score": 0.9,
                    "raw_content": None,
                    "published_date": "2026-02-03",
                },
                {"title": "Wheat", "url": "https://bread.test/wheat", "content": "", "score": 0.1},
            ],
            "response_time": "1.1",
        },
        {"query": "x", "results": [], "response_time": 0.1},
        (401, {"detail": {"error": "Unauthorized: missing or invalid API key."}}),
    ),
    "exa": Vendor(
        "POST",
        "/search",
        _header("x-api-key", KEY),
        _exactly(query=_text, numResults=_number(1, 100), contents=_is({"highlights": True})),
        {
            "requestId": "b5",
            "results": [
                {
                    "id": URL,
                    "title": "Rye bread",
                    "url": URL,
                    "publishedDate": "2026-02-03T00:00:00.000Z",
                    "author": None,
                    "highlights": ["How to bake rye bread & more."],
                },
                {"id": "w", "title": None, "url": "https://bread.test/wheat", "publishedDate": None},
            ],
            "costDollars": {"total": 0.005},
        },
        {"requestId": "b5", "results": []},
        (401, {"requestId": "b5", "error": "Invalid API key", "tag": "INVALID_API_KEY"}),
    ),
    "serper": Vendor(
        "POST",
        "/search",
        _header("X-API-KEY", KEY),
        _exactly(q=_text, num=_number(1, 100)),
        {
            "searchParameters": {"q": "rye", "type": "search"},
            "organic": [
                {
                    "title": "Rye bread",
                    "link": URL,
                    "snippet": "How to bake rye bread & more.",
                    "date": "2026-02-03",
                    "position": 1,
                },
                {"title": "Wheat", "link": "https://bread.test/wheat", "position": 2},
            ],
            "credits": 1,
        },
        {"searchParameters": {"q": "x"}, "organic": [], "credits": 1},
        (403, {"message": "Unauthorized.", "statusCode": 403}),
    ),
    "google": Vendor(
        "GET",
        "/customsearch/v1",
        lambda request: "" if request.query.get("key") == KEY else "the key is wrong",
        _exactly(key=_text, cx=_is(ENGINE_ID), q=_text, num=_digits(1, 10)),
        {
            "kind": "customsearch#search",
            "items": [
                {
                    "kind": "customsearch#result",
                    "title": "Rye bread",
                    "htmlTitle": "<b>Rye</b> bread",
                    "link": URL,
                    "snippet": "How to bake rye bread & more.",
                    "pagemap": {"metatags": [{"article:published_time": "2026-02-03T09:00:00+01:00"}]},
                },
                {"title": "Wheat", "link": "https://bread.test/wheat"},
            ],
        },
        {"kind": "customsearch#search", "searchInformation": {"totalResults": "0"}},
        (
            400,
            {
                "error": {
                    "code": 400,
                    "message": "API key not valid. Please pass a valid API key.",
                    "errors": [{"reason": "badRequest"}],
                    "status": "INVALID_ARGUMENT",
                    "details": [{"reason": "API_KEY_INVALID"}],
                }
            },
        ),
    ),
    "kagi": Vendor(
        "POST",
        "/search",
        _header("Authorization", f"Bearer {KEY}"),
        _exactly(query=_text, workflow=_is("search"), limit=_number(1, 1024)),
        {
            "meta": {"trace": "t", "node": "us", "ms": 12},
            "data": {
                "search": [
                    {
                        "title": "Rye bread",
                        "url": URL,
                        "snippet": "How to bake <b>rye</b> bread &amp; more.",
                        "time": "2026-02-03T04:05:06Z",
                    },
                    {"title": "Wheat", "url": "https://bread.test/wheat"},
                ],
                "related_search": [{"title": "x", "url": "y"}],
            },
        },
        {"meta": {"trace": "t"}, "data": {}},
        (401, {"meta": {"trace": "t"}, "error": [{"code": "unauthorized", "message": "Invalid token"}]}),
    ),
    "searxng": Vendor(
        "GET",
        "/search",
        lambda _: "",
        _exactly(q=_text, format=_is("json")),
        {
            "query": "rye",
            "results": [
                {
                    "title": "Rye bread",
                    "url": URL,
                    "content": "How to bake rye bread & more.",
                    "publishedDate": "2026-02-03T00:00:00",
                    "engine": "mojeek",
                    "score": 1.0,
                },
                {"title": "Wheat", "url": "https://bread.test/wheat", "content": None, "publishedDate": None},
            ],
            "unresponsive_engines": [],
        },
        {"query": "x", "results": [], "unresponsive_engines": [["google", "timeout"]]},
        (403, "<h1>Forbidden</h1>"),
    ),
    "duckduckgo": Vendor(
        "GET", "/html/", lambda _: "", _exactly(q=_text), LISTING, "<html>No results.</html>", (403, "Forbidden")
    ),
}


@dataclass
class SearchServers:
    """All vendors at once; ``override`` replaces the answer of one by name."""

    base: str = ""
    called: list[str] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    override: dict[str, Callable[[], web.Response]] = field(default_factory=dict)

    def account(self, name: str, key: str = KEY) -> EngineAccount:
        """Return the account of an engine at its stand-in."""
        keyless = name in {"searxng", "duckduckgo"}
        engine_id = ENGINE_ID if name == "google" else ""
        return EngineAccount(name, "" if keyless else key, f"{self.base}/{name}", engine_id)

    async def answer(self, request: web.Request) -> web.Response:
        name = request.match_info["vendor"]
        vendor = VENDORS[name]
        self.called.append(name)
        if name in self.override:
            return self.override[name]()
        body = await request.read()
        if request.method != vendor.method or request.path != f"/{name}{vendor.path}":
            return web.Response(status=404, text=f"{request.method} {request.path}")
        if vendor.method == "POST" and request.content_type != "application/json":
            return web.Response(status=415)
        if vendor.key(request):
            status, refusal = vendor.bad_key
            return web.Response(status=status, text=refusal if isinstance(refusal, str) else json.dumps(refusal))
        parameters: Body = json.loads(body) if vendor.method == "POST" else dict(request.query)
        problem = vendor.parameters(parameters)
        if problem:
            return web.json_response({"error": problem}, status=400)
        self.queries.append(parameters.get("q") or parameters["query"])
        answer = vendor.nothing if self.queries[-1] == "nothing" else vendor.found
        if isinstance(answer, str):
            return web.Response(text=answer, content_type="text/html")
        return web.json_response(answer)


@asynccontextmanager
async def search_servers() -> AsyncIterator[SearchServers]:
    """Serve all vendors while the block runs."""
    servers = SearchServers()
    app = web.Application()
    app.router.add_route("*", "/{vendor}/{path:.*}", servers.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    servers.base = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield servers
    finally:
        await runner.cleanup()

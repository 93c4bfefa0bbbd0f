"""Front doors: another way to identify callers and another format of errors, over the same HTTP layer."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from msgspec import Struct
from tests.http.loopback_client import loopback_client

from talaria.contracts.store import Store
from talaria.core.errors import NotFound
from talaria.core.ids import new_worker_id
from talaria.http.application import HttpApplication, RequestMetrics, ServerOptions
from talaria.http.errors import Problem
from talaria.http.idempotency import IdempotencyStore
from talaria.http.routing import OriginPolicy, Reply, Request, RequestLimiter, Route, Router
from talaria.http.server import ConnectionLimits, serve_application

_HTML = "text/html; charset=utf-8"
_COOKIES = {"browser=a": "Ann", "browser=b": "Bob"}


class Person(Struct, frozen=True):
    """A person with a browser that is signed in."""

    name: str


class CookieDoor:
    """Front door that identifies callers by their cookie and renders errors as HTML."""

    def __init__(self) -> None:
        self.signed_out: set[str] = set()

    async def authenticate(self, request: Request[Person], scope: str) -> Person:
        name = _COOKIES.get(request.headers.get("cookie", ""), "")
        if not name or name in self.signed_out:
            raise Problem("Please sign in.", 401, code="signed_out")
        if scope == "owner" and name != "Ann":
            raise Problem("Only the owner may do that.", 403, code="owner_only")
        return Person(name)

    async def check_again(self, request: Request[Person], scope: str) -> None:
        await self.authenticate(request, scope)

    def render_problem(self, problem: Problem) -> Reply:
        page = f"<h1>{problem.status}</h1><p>{problem}</p>"
        return Reply(status=problem.status, body=page.encode(), content_type=_HTML, headers=problem.headers)


class Pages:
    """Pages that greet, count, fail and wait."""

    def __init__(self) -> None:
        self.posted = 0
        self.waiting = asyncio.Event()

    def routes(self) -> tuple[Route, ...]:
        return (
            Route(method="GET", path="/", handler=self._greet, summary="Greet", scope="person"),
            Route(method="GET", path="/open", handler=self._open, summary="Open to all", scope=None),
            Route(method="GET", path="/none", handler=self._none, summary="Fail", scope="person"),
            Route(method="POST", path="/posts", handler=self._post, summary="Post", scope="owner", repeatable=True),
            Route(method="POST", path="/wait", handler=self._wait, summary="Wait", scope="person"),
        )

    async def _greet(self, request: Request[Person]) -> Reply:
        return Reply(body=f"Hello {request.caller.name}".encode(), content_type=_HTML)

    async def _open(self, _request: Request[Person]) -> Reply:
        return Reply(body=b"Hello", content_type=_HTML)

    async def _none(self, _request: Request[Person]) -> Reply:
        raise NotFound("There is no such page.")

    async def _post(self, _request: Request[Person]) -> Reply:
        self.posted += 1
        return Reply(status=201, body=str(self.posted).encode(), content_type=_HTML)

    async def _wait(self, _request: Request[Person]) -> Reply:
        self.waiting.set()
        await asyncio.Event().wait()
        raise AssertionError


@pytest.fixture
def door() -> CookieDoor:
    return CookieDoor()


@pytest.fixture
def pages() -> Pages:
    return Pages()


@pytest.fixture
async def browser(store: Store, door: CookieDoor, pages: Pages) -> AsyncIterator[httpx.AsyncClient]:
    application = HttpApplication(
        Router(pages.routes()),
        door,
        IdempotencyStore(store, new_worker_id()),
        OriginPolicy("127.0.0.1"),
        RequestLimiter(0, 0),
        RequestMetrics(),
        ServerOptions(heartbeat=0.05),
    )
    async with asyncio.TaskGroup() as jobs:
        limits = ConnectionLimits(head_bytes=2_000)
        async with (
            serve_application(application, "127.0.0.1", 0, jobs, limits) as address,
            loopback_client(address, headers={"cookie": "browser=a"}) as client,
        ):
            yield client


async def test_callers_are_identified_by_the_front_door(browser: httpx.AsyncClient) -> None:
    assert (await browser.get("/")).text == "Hello Ann"
    assert (await browser.get("/", headers={"cookie": "browser=b"})).text == "Hello Bob"
    assert (await browser.get("/", headers={"cookie": "", "authorization": "Bearer a"})).status_code == 401
    assert (await browser.get("/open", headers={"cookie": ""})).text == "Hello"
    assert (await browser.post("/posts", headers={"cookie": "browser=b"})).status_code == 403


@pytest.mark.parametrize(
    ("path", "headers", "page"),
    [
        ("/", {"cookie": ""}, "<h1>401</h1><p>Please sign in.</p>"),
        ("/none", {}, "<h1>404</h1><p>There is no such page.</p>"),
        ("/nowhere", {}, "<h1>404</h1><p>There is no `/nowhere`."),
        ("/", {"host": "evil.example.org"}, "<h1>421</h1>"),
        ("/", {"x-long": "x" * 3_000}, "<h1>431</h1>"),
    ],
)
async def test_errors_are_rendered_by_the_front_door(
    browser: httpx.AsyncClient, path: str, headers: dict[str, str], page: str
) -> None:
    answer = await browser.get(path, headers=headers)
    assert answer.text.startswith(page)
    assert answer.headers["content-type"] == _HTML


async def test_repeated_idempotency_key_replays_the_reply(browser: httpx.AsyncClient, pages: Pages) -> None:
    key = {"idempotency-key": "one"}
    first = await browser.post("/posts", headers=key)
    again = await browser.post("/posts", headers=key)
    assert (first.text, again.text, again.headers["idempotent-replayed"]) == ("1", "1", "true")
    assert (await browser.post("/posts", headers={"idempotency-key": "two"})).text == "2"
    assert pages.posted == 2


async def test_running_request_ends_when_its_caller_signs_out(
    browser: httpx.AsyncClient, door: CookieDoor, pages: Pages
) -> None:
    async with asyncio.TaskGroup() as group:
        request = group.create_task(browser.post("/wait"))
        await pages.waiting.wait()
        door.signed_out.add("Ann")
    assert request.result().text == "<h1>401</h1><p>Please sign in.</p>"

"""Calls to servers that don't answer as a homeserver should."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from aiohttp import web
from msgspec import Raw

from talaria.core.errors import PlatformError, Rejected, SlowDown, Unreachable
from talaria.platforms.matrix.client import MatrixApi, path_of
from talaria.platforms.matrix.settings import MatrixSettings

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def api_of(answer: Answer, **settings: timedelta | int) -> AsyncIterator[MatrixApi]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application, shutdown_timeout=0)
    await runner.setup()
    api = None
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        api = MatrixApi(MatrixSettings(homeserver=url, **settings))  # type: ignore[arg-type] # options of any type
        yield api
    finally:
        if api is not None:
            await api.close()
        await runner.cleanup()


@pytest.mark.parametrize(
    ("status", "text", "headers", "kind", "problem"),
    [
        (301, "", {"Location": "https://matrix.x.example/"}, Unreachable, "redirects to https://matrix.x.example/"),
        (200, "<html>Welcome", {}, Unreachable, "not Matrix"),
        (403, '{"errcode": "M_FORBIDDEN", "error": "no"}', {}, Rejected, "M_FORBIDDEN: no"),
        (403, '{"errcode": 3}', {}, Unreachable, "403"),
        (404, "[]", {}, Unreachable, "404"),
        (502, "<html>Bad Gateway", {}, Unreachable, "502"),
    ],
)
async def test_unusable_response_is_reported_with_its_problem(
    status: int, text: str, headers: dict[str, str], kind: type[PlatformError], problem: str
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, text=text, headers=headers)

    async with api_of(answer) as api:
        with pytest.raises(kind, match=problem):
            await api.get("/account/whoami", Raw)


@pytest.mark.parametrize(
    ("text", "headers", "seconds"),
    [
        ('{"errcode": "M_LIMIT_EXCEEDED", "retry_after_ms": 1500}', {"Retry-After": "9"}, 1.5),
        ('{"errcode": "M_LIMIT_EXCEEDED"}', {"Retry-After": "9"}, 9),
        ("slow down", {}, 5),
    ],
)
async def test_rate_limit_is_reported_with_its_pause(text: str, headers: dict[str, str], seconds: float) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=429, text=text, headers=headers)

    async with api_of(answer) as api:
        with pytest.raises(SlowDown) as slow:
            await api.send("PUT", "/x", {}, Raw)
    assert slow.value.retry_after == timedelta(seconds=seconds)


async def test_endless_response_is_aborted() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        while True:
            await stream.write(b" ")
            await asyncio.sleep(0.01)  # real time: a server that sends slowly

    async with api_of(answer, patience=timedelta(seconds=0.5)) as api:
        with pytest.raises(Unreachable, match=r"doesn't answer within 0\.5 seconds"):
            await api.get("/account/whoami", Raw)


async def test_error_message_does_not_contain_the_query() -> None:
    api = MatrixApi(MatrixSettings(homeserver="http://127.0.0.1:9"))
    with pytest.raises(Unreachable, match="/_matrix/client/v3/sync doesn't answer") as gone:
        await api.fetch("/sync", {"filter": "secret"}, timedelta(seconds=60))
    assert "secret" not in str(gone.value)


async def test_special_characters_in_ids_are_escaped() -> None:
    requested: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        requested.append(request.raw_path)
        return web.json_response({})

    async with api_of(answer) as api:
        await api.get(path_of("rooms", "!a/b:x", "event", "$c?d#e%2F"), Raw, query={"from": "s1 &=", "to": ""})
    assert requested == ["/_matrix/client/v3/rooms/%21a%2Fb%3Ax/event/%24c%3Fd%23e%252F?from=s1%20%26%3D"]

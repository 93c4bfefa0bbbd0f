"""Token checks of chat networks and OpenRouter on loopback, each with its own responses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

TOKEN = "123456:right-token-0123456789"
"""The one token that every network accepts."""


@asynccontextmanager
async def networks() -> AsyncIterator[str]:
    """Yield the address of a server that is Telegram, Discord, Slack and Matrix at once."""
    application = web.Application()
    application.router.add_get("/bot{token}/getMe", _telegram)
    application.router.add_get("/users/@me", _discord)
    application.router.add_post("/auth.test", _slack)
    application.router.add_post("/apps.connections.open", _slack_app)
    application.router.add_get("/_matrix/client/v3/account/whoami", _matrix)
    application.router.add_get("/openrouter/key", _openrouter_key)
    application.router.add_get("/openrouter/models", _openrouter_models)
    application.router.add_route("*", "/silent/{rest:.*}", _silent)
    application.router.add_route("*", "/trouble/{rest:.*}", _trouble)
    application.router.add_route("*", "/page/{rest:.*}", _page)
    application.router.add_route("*", "/elsewhere/{rest:.*}", _elsewhere)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.01, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _telegram(request: web.Request) -> web.Response:
    if ":" not in request.match_info["token"]:
        return web.json_response({"ok": False, "error_code": 404, "description": "Not Found"}, status=404)
    if request.match_info["token"] != TOKEN:
        return web.json_response({"ok": False, "error_code": 401, "description": "Unauthorized"}, status=401)
    bot = {"id": 123456, "is_bot": True, "first_name": "Hermes", "username": "winged_bot"}
    return web.json_response({"ok": True, "result": bot})


async def _discord(request: web.Request) -> web.Response:
    if request.headers.get("Authorization") != f"Bot {TOKEN}":
        return web.json_response({"message": "401: Unauthorized", "code": 0}, status=401)
    user = {"id": "80351110224678912", "username": "winged", "discriminator": "0", "global_name": None, "bot": True}
    return web.json_response(user)


async def _slack(request: web.Request) -> web.Response:
    if request.headers.get("Authorization") != f"Bearer {TOKEN}":
        return web.json_response({"ok": False, "error": "invalid_auth"})
    named = {"url": "https://acme.slack.com/", "team": "Acme", "user": "winged", "team_id": "T1", "user_id": "U1"}
    return web.json_response({"ok": True, **named, "bot_id": "B1"})


async def _slack_app(request: web.Request) -> web.Response:
    if request.headers.get("Authorization") != f"Bearer {TOKEN}":
        return web.json_response({"ok": False, "error": "invalid_auth"})
    return web.json_response({"ok": True, "url": "wss://wss-primary.slack.com/link/?ticket=1"})


async def _matrix(request: web.Request) -> web.Response:
    if request.headers.get("Authorization") != f"Bearer {TOKEN}":
        return web.json_response({"errcode": "M_UNKNOWN_TOKEN", "error": "Invalid access token passed."}, status=401)
    return web.json_response({"user_id": "@winged:example.org", "device_id": "AAAA", "is_guest": False})


async def _openrouter_key(request: web.Request) -> web.Response:
    if request.headers.get("Authorization") != f"Bearer {TOKEN}":
        return web.json_response({"error": {"message": "User not found.", "code": 401}}, status=401)
    return web.json_response({"data": {"label": "sk-or-v1-abc...123", "limit": None, "usage": 0}})


async def _openrouter_models(_request: web.Request) -> web.Response:
    return web.json_response({"data": [{"id": "anthropic/claude-sonnet-5.5"}, {"id": "vendor/another"}]})


async def _silent(_request: web.Request) -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def _trouble(_request: web.Request) -> web.Response:
    return web.Response(text="<h1>502 Bad Gateway</h1>", content_type="text/html", status=502)


async def _page(_request: web.Request) -> web.Response:
    return web.Response(text="<h1>Please sign in</h1>", content_type="text/html")


async def _elsewhere(_request: web.Request) -> web.Response:
    return web.Response(status=302, headers={"Location": "http://127.0.0.1:9/"})

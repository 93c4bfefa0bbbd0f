"""OAuth cases that a real authorization server does not produce: OpenAI's codes, odd responses, ports in use."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import aiohttp
import msgspec
import pytest
from aiohttp import web
from tests.providers.scripted_providers import pool

from talaria.core.errors import ProviderUnreachable, Refused, SignInNeeded
from talaria.providers.login_clients import LOGIN_CLIENTS, OAuthClient, find_login_client
from talaria.providers.loopback_redirect import LoopbackRedirect
from talaria.providers.oauth import AuthorizationServer, Pkce, authorize_url, read_claims, read_redirect

Handler = Callable[[str], web.Response]


@asynccontextmanager
async def authority(**handlers: Handler) -> AsyncIterator[str]:
    """Serve paths whose names have ``_`` for ``/``; yields the address.

    A handler gets the body of a request.
    """
    application = web.Application()
    for name, handler in handlers.items():

        async def answer(call: web.Request, handler: Handler = handler) -> web.Response:
            return handler(await call.text())

        application.router.add_route("*", f"/{name.replace('_', '/')}", answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def client_at(url: str, name: str = "openai") -> OAuthClient:
    known = find_login_client(name)
    assert known is not None
    return msgspec.structs.replace(
        known, issuer=url, token_url=f"{url}/token", device_url=f"{url}/device", exchange_url=""
    )


async def test_openai_device_code_is_polled_and_redeemed_with_the_servers_verifier() -> None:
    polls = iter([403, 404, 200])
    redeemed: list[str] = []

    def poll(_: str) -> web.Response:
        code = {"authorization_code": "granted", "code_verifier": "theirs", "code_challenge": "x"}
        return web.json_response(code, status=next(polls))

    def redeem(body: str) -> web.Response:
        redeemed.append(body)
        return web.json_response({"access_token": "new", "refresh_token": "later", "expires_in": 60})

    started = {"device_auth_id": "secret", "user_code": "ABCD-EFGH", "interval": "0.01"}
    handlers = {"device_usercode": lambda _: web.json_response(started), "device_token": poll, "token": redeem}
    async with authority(**handlers) as url, pool() as http:
        server = AuthorizationServer(client_at(url), http)
        code = await server.start_device()
        assert (code.user_code, code.page) == ("ABCD-EFGH", "https://auth.openai.com/codex/device")
        granted = await server.wait_for_device(code)
    assert (granted.access_token, granted.refresh_token) == ("new", "later")
    assert "code_verifier=theirs" in redeemed[0]
    assert "deviceauth%2Fcallback" in redeemed[0]


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (400, {"error": "invalid_grant"}, SignInNeeded),
        (401, {"error": {"code": "refresh_token_reused", "message": "used"}}, SignInNeeded),
        (503, {}, ProviderUnreachable),
        (200, {}, Refused),
        (200, "not an object", Refused),
    ],
    ids=["revoked", "reused", "failing", "empty", "odd"],
)
async def test_refused_refresh_requires_a_sign_in_but_a_failing_server_does_not(
    status: int, body: object, error: type[Exception]
) -> None:
    async with authority(token=lambda _: web.json_response(body, status=status)) as url, pool() as http:
        with pytest.raises(error) as raised:
            await AuthorizationServer(client_at(url), http).refresh("old")
    if error is SignInNeeded:
        assert "talaria login openai" in str(raised.value)


async def test_refresh_without_a_new_refresh_token_preserves_the_old_one() -> None:
    granted = {"access_token": "new", "expires_in": 60}
    async with authority(token=lambda _: web.json_response(granted)) as url, pool() as http:
        assert (await AuthorizationServer(client_at(url), http).refresh("old")).refresh_token == "old"


async def test_redirect_with_another_state_or_issuer_is_refused() -> None:
    pkce = Pkce.create()
    async with pool() as http:
        server = AuthorizationServer(client_at("https://issuer.test"), http)
        for answer in ({"code": "x", "state": "other"}, {"code": "x"}):
            with pytest.raises(Refused, match="another sign-in"):
                await server.redeem(answer, "http://localhost/", pkce)
        found = {"code": "x", "state": pkce.state, "iss": "https://evil.test"}
        with pytest.raises(Refused, match=r"https://evil\.test"):
            await server.redeem(found, "http://localhost/", pkce)


async def test_loopback_server_ignores_other_paths_and_states() -> None:
    redirect = LoopbackRedirect("/auth/callback", "right")
    async with redirect.listen(()), aiohttp.ClientSession() as browser:
        statuses = []
        for target in ("?x=1", "?code=a&state=wrong", "?code=b&state=right"):
            async with browser.get(f"{redirect.uri}{target}") as answer:
                statuses.append(answer.status)
        async with browser.get(redirect.uri.replace("/auth/callback", "/favicon.ico")) as answer:
            statuses.append(answer.status)
        found = await redirect.wait(timedelta(seconds=60))
    assert statuses == [400, 400, 200, 404]
    assert found["code"] == "b"


async def test_redirect_ports_in_use_are_named_in_the_error() -> None:
    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    taken = await asyncio.start_server(close, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    with pytest.raises(Refused, match=f"{port}.*--device"):
        async with LoopbackRedirect("/", "state").listen((port,)):
            pass
    taken.close()


@pytest.mark.parametrize("client", LOGIN_CLIENTS, ids=lambda client: client.name)
def test_every_login_client_has_valid_urls_and_a_flow(client: OAuthClient) -> None:
    urls = [client.authorize_url, client.token_url, client.device_url, client.revoke_url, client.exchange_url]
    assert all(url.startswith("https://") for url in urls if url)
    assert client.has_browser_flow or client.device_flow
    assert client.name == "google" or client.client_id
    assert not client.client_secret


def test_authorize_url_has_a_challenge_and_no_verifier() -> None:
    client, pkce = client_at("https://issuer.test"), Pkce.create()
    query = read_redirect(authorize_url(client, "http://localhost:1455/auth/callback", pkce))
    assert (query["code_challenge"], query["code_challenge_method"]) == (pkce.challenge, "S256")
    assert pkce.verifier not in str(query)
    assert query["scope"].split() == ["openid", "profile", "email", "offline_access"]


@pytest.mark.parametrize("token", ["", "opaque", "a.b.c", "e30.W10.x", "é.é.é"])
def test_claims_of_an_invalid_token_are_empty(token: str) -> None:
    assert read_claims(token) == {}

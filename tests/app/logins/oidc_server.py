"""A real authorization server, a person with a browser, and a model server that checks the tokens."""

import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from urllib.parse import urljoin

import aiohttp
import pytest
from aiohttp import web

from talaria.testing.model_server import ModelServer
from talaria.testing.wait import LIMIT

_PACKAGE = Path(__file__).parents[3] / ".oidc-provider" / "node_modules" / "oidc-provider" / "lib" / "index.js"
_SCRIPT = Path(__file__).with_suffix(".mjs")
_FORM_TARGET = re.compile(r'<form[^>]* action="([^"]+)"')
_INPUT = re.compile(r'<input[^>]* name="(\w+)"[^>]* value="([^"]*)"')


@dataclass(frozen=True)
class OidcServer:
    """The server at ``issuer``, which tests share; ``earlier`` is the number of refreshes before this test."""

    issuer: str
    earlier: int = 0

    async def count_refreshes(self) -> int:
        """Return how often tokens were refreshed with success in this test."""
        async with aiohttp.ClientSession() as http, http.get(f"{self.issuer}/grants") as answer:
            return int((await answer.json()).get("refresh_token", 0)) - self.earlier

    async def revoke(self, token: str, client: str = "public-client") -> None:
        """Revoke a token, as its owner or the server would."""
        form = {"token": token, "client_id": client}
        async with aiohttp.ClientSession() as http, http.post(f"{self.issuer}/token/revocation", data=form) as answer:
            assert answer.status == 200, await answer.text()

    async def is_valid(self, authorization: str) -> bool:
        """Return whether the server knows a token and it hasn't expired."""
        headers = {"Authorization": authorization}
        async with aiohttp.ClientSession() as http, http.get(f"{self.issuer}/me", headers=headers) as answer:
            return answer.status == 200


@contextmanager
def running_oidc_provider() -> Iterator[str]:
    """Run `oidc-provider`, whose access tokens live for an hour; yield its address."""
    node = shutil.which("node")
    if node is None or not _PACKAGE.exists():
        pytest.skip("oidc-provider is not installed; `make apiclients` installs it where it can be had")
    command = [node, str(_SCRIPT), str(_PACKAGE), "3600"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().decode().strip()
    finally:
        process.communicate(timeout=LIMIT)  # it ends with its input


@dataclass
class Person:
    """A person with a browser: follows redirects, fills in the forms of the sign-in pages."""

    name: str = "maria"
    pages: list[str] = field(default_factory=list)

    async def sign_in(self, url: str, *, declines: bool = False, code: str = "") -> str:
        """Sign in at an address, and return the address and text of the last page."""
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar) as browser:
            address, page = await self._visit(browser, url)
            for _ in range(6):
                found = _FORM_TARGET.search(page)
                if found is None:
                    break
                target, form = urljoin(address, unescape(found[1])), dict(_INPUT.findall(page))
                if "abort" in page and declines:
                    address, page = await self._visit(browser, f"{address}/abort")
                    break
                filled = {"login": self.name, "password": "any", "user_code": code}
                form |= {name: value for name, value in filled.items() if f'name="{name}"' in page}
                address, page = await self._visit(browser, target, form)
            return f"{address} {page}"

    async def _visit(
        self, browser: aiohttp.ClientSession, url: str, form: dict[str, str] | None = None
    ) -> tuple[str, str]:
        method = "POST" if form is not None else "GET"
        async with browser.request(method, url, data=form) as answer:
            self.pages.append(str(answer.url))
            return str(answer.url), await answer.text()


@dataclass
class GuardedModels:
    """A model server that answers 401 unless the authorization server knows the token."""

    url: str = ""
    received: list[web.Request] = field(default_factory=list)
    refused: int = 0


@asynccontextmanager
async def guarded_models(oidc: OidcServer, server: ModelServer, prefix: str = "/v1") -> AsyncIterator[GuardedModels]:
    """Serve the scripted models to callers with a valid token."""
    guarded = GuardedModels()

    async def forward(call: web.Request) -> web.StreamResponse:
        guarded.received.append(call)
        if not await oidc.is_valid(call.headers.get("Authorization", "")):
            guarded.refused += 1
            return web.json_response({"error": {"code": "token_expired", "message": "expired"}}, status=401)
        body = await call.read()
        headers = {"Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession() as http,
            http.request(call.method, f"{server.url}{prefix}{call.path}", data=body or None, headers=headers) as answer,
        ):
            headers_back = {"Content-Type": answer.headers["Content-Type"]}
            return web.Response(status=answer.status, body=await answer.read(), headers=headers_back)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    guarded.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield guarded
    finally:
        await runner.cleanup()

"""Signing in to an MCP server behind a real authorization server: registration, PKCE, renewal across processes."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from tests.app import warm_program
from tests.app.logins.oidc_server import OidcServer, Person
from tests.app.logins.protected_server import ProtectedServer, protected_server
from tests.app.program import Outcome, Program

from talaria.app.session.mcp_servers import McpTokens
from talaria.core.errors import ProviderUnreachable, SignInNeeded
from talaria.settings.logins import LoginStore, StoredLogin, login_name
from talaria.testing.wait import LIMIT

pytestmark = pytest.mark.slow
BROWSER = {"BROWSER": "true %s"}


@dataclass(frozen=True)
class Vault:
    """A profile with one protected MCP server."""

    program: Program
    oidc: OidcServer
    protected: ProtectedServer

    @property
    def folder(self) -> Path:
        return self.program.home / "profiles" / "default"

    @property
    def store(self) -> LoginStore:
        return LoginStore(self.folder)

    @property
    def tokens(self) -> McpTokens:
        return McpTokens("vault", self.protected.url, self.store)

    def stored(self) -> StoredLogin:
        found = self.store.get(login_name("vault"))
        assert found is not None
        return found

    def change(self, **values: Any) -> None:
        self.store.put(msgspec.structs.replace(self.stored(), **values))

    async def run(self, *arguments: str) -> Outcome:
        environment = self.program.environment()
        return Outcome(*await asyncio.to_thread(warm_program.run, arguments, env=environment, cwd=self.program.home))

    async def sign_in(self, person: Person) -> Outcome:
        """Run `talaria mcp login` with a person who opens the address it shows."""
        process = await warm_program.start(
            "mcp", "login", "vault", env=self.program.environment(**BROWSER), stdout=warm_program.PIPE,
            stderr=warm_program.PIPE,
        )  # fmt: skip
        assert process.stderr is not None
        shown = ""
        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as jobs:
            while line := (await process.stderr.readline()).decode():
                shown += line
                if line.startswith("http"):
                    jobs.create_task(person.sign_in(line.strip()))
            out, _ = await process.communicate()
        return Outcome(await process.wait(), out.decode(), shown)


@pytest.fixture
async def vault(tmp_path: Path, oidc: OidcServer) -> AsyncIterator[Vault]:
    async with protected_server(oidc) as protected:
        folder = tmp_path / "profiles" / "default"
        folder.mkdir(mode=0o700, parents=True)
        (folder / "config.toml").write_text(
            f'[mcp.vault]\nurl = "{protected.url}"\nconnect_timeout_seconds = 60\nscope = "tools offline_access"\n'
        )
        yield Vault(Program(tmp_path), oidc, protected)


async def test_sign_in_registers_stores_private_tokens_and_is_renewed_once(vault: Vault) -> None:
    refused = await vault.run("mcp", "test", "vault")
    assert refused.code == 1
    assert "Sign in with `talaria mcp login vault`" in refused.err
    done = await vault.sign_in(Person())
    assert done.code == 0, done.err
    assert done.out.startswith("Signed in to vault")
    assert "mcp_vault_open_vault" in done.out
    file = vault.store.path("mcp-vault")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    first = vault.stored()
    assert first.client_id not in {"", "public-client"}
    assert json.loads((await vault.run("mcp", "list", "--json")).out)[0]["signed_in"] is True

    # Several processes find an expired token at the same moment: one of them renews it, once.
    vault.change(expires_at=datetime(2020, 1, 1, tzinfo=UTC), renew_at=datetime(2020, 1, 1, tzinfo=UTC))
    async with asyncio.TaskGroup() as group:
        for _ in range(2):
            group.create_task(vault.run("mcp", "test", "vault"))
        here = [group.create_task(vault.tokens.headers("GET", vault.protected.url, b"")) for _ in range(3)]
    assert len({task.result()["Authorization"] for task in here}) == 1
    assert await vault.oidc.count_refreshes() == 1
    assert vault.stored().access_token != first.access_token

    # A token that the server rejects early is renewed too, and the call is repeated.
    await vault.oidc.revoke(vault.stored().access_token, vault.stored().client_id)
    tested = await vault.run("mcp", "test", "vault")
    assert tested.code == 0, tested.err
    assert vault.protected.rejected[-1:] != vault.protected.seen[-1:]
    assert await vault.oidc.count_refreshes() == 2

    assert (await vault.run("mcp", "logout", "vault")).out == "Signed out of vault.\n"
    assert not file.exists()


async def test_failed_renewal_never_deletes_tokens(vault: Vault) -> None:
    assert (await vault.sign_in(Person())).code == 0
    good = vault.stored()
    past = datetime(2020, 1, 1, tzinfo=UTC)
    vault.change(expires_at=past, renew_at=past, token_url="http://127.0.0.1:1/token")
    with pytest.raises(ProviderUnreachable):
        await vault.tokens.headers("GET", vault.protected.url, b"")
    after = vault.stored()
    assert (after.refresh_token, after.problem) == (good.refresh_token, "")
    vault.change(token_url=good.token_url)
    assert (await vault.run("mcp", "test", "vault")).code == 0

    await vault.oidc.revoke(vault.stored().refresh_token, good.client_id)
    vault.change(expires_at=past, renew_at=past)
    with pytest.raises(SignInNeeded, match="talaria mcp login vault"):
        await vault.tokens.headers("GET", vault.protected.url, b"")
    assert "expired" in (await vault.run("mcp", "list")).out


async def test_renewal_survives_cancellations(tmp_path: Path) -> None:
    requested, may_answer = asyncio.Event(), asyncio.Event()

    async def renew(_request: web.Request) -> web.Response:
        requested.set()
        await may_answer.wait()
        return web.json_response({"access_token": "new", "refresh_token": "next", "expires_in": 60})

    application = web.Application()
    application.router.add_post("/token", renew)
    store, past, url = LoginStore(tmp_path), datetime(2020, 1, 1, tzinfo=UTC), "https://vault.example/mcp"
    async with TestServer(application) as server:
        store.put(
            StoredLogin(
                name="mcp-vault", access_token="old", refresh_token="once", expires_at=past, renew_at=past,
                client_id="x", base_url=url, token_url=str(server.make_url("/token")),
            )
        )  # fmt: skip
        renewal = asyncio.ensure_future(McpTokens("vault", url, store).headers("GET", url, b""))
        async with asyncio.timeout(LIMIT):
            await requested.wait()
            for _ in range(2):
                renewal.cancel()
                await asyncio.sleep(0)
            may_answer.set()
            await asyncio.wait([renewal])
    assert renewal.cancelled()
    stored = store.get("mcp-vault")
    assert stored is not None
    assert (stored.access_token, stored.refresh_token) == ("new", "next")


async def test_tokens_are_sent_only_to_the_server_they_were_granted_for(vault: Vault) -> None:
    now = datetime.now(UTC)
    vault.store.put(
        StoredLogin(
            name="mcp-vault", access_token="secret", refresh_token="", expires_at=now, renew_at=now, client_id="x",
            base_url="https://other.example/mcp",
        )
    )  # fmt: skip
    with pytest.raises(SignInNeeded, match="address of vault has changed"):
        await vault.tokens.headers("GET", vault.protected.url, b"")
    tested = await vault.run("mcp", "test", "vault")
    assert tested.code == 1
    assert "has changed since" in tested.err
    assert vault.protected.seen == []


async def test_declined_sign_in_stores_no_tokens(vault: Vault) -> None:
    class Declining(Person):
        async def sign_in(self, url: str, *, declines: bool = False, code: str = "") -> str:
            return await super().sign_in(url, declines=True, code=code)

    done = await vault.sign_in(Declining())
    assert done.code == 1
    assert "was declined" in done.err
    assert not vault.store.exists("mcp-vault")

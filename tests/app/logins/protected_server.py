"""A real MCP server of the SDK behind an authorization server: it accepts only tokens that were granted for it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp_types import ToolAnnotations
from pydantic import AnyHttpUrl
from tests.app.logins.oidc_server import OidcServer

from talaria.testing.wait import until


@dataclass
class ProtectedServer:
    """The server at ``url``; ``seen`` are the tokens that it was shown, ``rejected`` those it didn't accept."""

    oidc: OidcServer
    url: str = ""
    seen: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)

    async def verify_token(self, token: str) -> AccessToken | None:
        """Ask the authorization server about a token; implements `TokenVerifier`."""
        self.seen.append(token)
        form = {"token": token, "client_id": "public-client"}
        target = f"{self.oidc.issuer}/token/introspection"
        async with aiohttp.ClientSession() as http, http.post(target, data=form) as answer:
            found = await answer.json()
        if not found.get("active") or found.get("aud") != self.url:
            self.rejected.append(token)
            return None
        return AccessToken(
            token=token, client_id=found["client_id"], scopes=found.get("scope", "").split(), resource=found["aud"]
        )


@asynccontextmanager
async def protected_server(oidc: OidcServer) -> AsyncIterator[ProtectedServer]:
    """Serve one tool to callers with a valid token."""
    listening = socket.create_server(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{listening.getsockname()[1]}"
    protected = ProtectedServer(oidc, f"{base}/mcp")
    server = MCPServer(
        "vault",
        log_level="WARNING",
        token_verifier=protected,
        auth=AuthSettings(
            issuer_url=AnyHttpUrl(oidc.issuer),
            resource_server_url=AnyHttpUrl(protected.url),
            required_scopes=["tools"],
            validate_token_resource=True,
        ),
    )

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def open_vault() -> str:
        """Open the vault."""
        return "gold"

    running = uvicorn.Server(
        uvicorn.Config(server.streamable_http_app(), log_level="error", timeout_graceful_shutdown=1)
    )
    serving = asyncio.ensure_future(running.serve([listening]))
    try:
        await until(lambda: running.started)
        yield protected
    finally:
        running.should_exit = True
        await asyncio.wait([serving])

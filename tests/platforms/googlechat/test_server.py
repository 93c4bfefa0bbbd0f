"""The loopback Google Chat server with Google's own library: the exchange of tokens, and the tokens of events."""

import asyncio
from pathlib import Path

from google.auth.transport.requests import Request
from google.oauth2 import id_token, service_account

from talaria.testing.googlechat_server import CHAT_ACCOUNT, googlechat_server


async def test_official_library_gets_a_token_and_verifies_event_tokens(tmp_path: Path) -> None:
    async with googlechat_server("123456789012", {}) as server:
        server.write_key_file(tmp_path / "key.json")
        account = service_account.Credentials.from_service_account_file(  # type: ignore[no-untyped-call] # it has no types
            str(tmp_path / "key.json"), scopes=["https://www.googleapis.com/auth/chat.bot"]
        )
        await asyncio.to_thread(account.refresh, Request())
        token = server.issuer.sign(server.claims)
        claims = await asyncio.to_thread(id_token.verify_token, token, Request(), "123456789012", f"{server.url}/keys")
    assert account.token
    assert claims["iss"] == CHAT_ACCOUNT

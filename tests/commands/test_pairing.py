"""`/pairing`: the owner answers requests of people and browsers from any chat."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.commands.command_fixture import ChatClient, open_chat_client

from talaria.access.browsers import digest_token, read_browsers
from talaria.access.pairing import offer_browser_code, offer_code
from talaria.contracts.stores.access import PairedPerson
from talaria.testing.model_server import ModelServer


@pytest.fixture
async def client(tmp_path: Path, server: ModelServer) -> AsyncIterator[ChatClient]:
    async with open_chat_client(tmp_path, server) as client:
        yield client


async def test_pairing_requests_are_listed_approved_and_refused(client: ChatClient) -> None:
    store = client.application.store
    assert await client.use("/pairing") == "There are no pairing requests."
    code = await store.write(lambda tx: offer_code(tx, PairedPerson("telegram", "7", "Ann")))
    await store.write(lambda tx: offer_code(tx, PairedPerson("telegram", "8", "Ben")))
    assert "telegram: Ann (`7`)" in await client.use("/pairing")
    assert await client.use(f"/pairing approve telegram {code}") == "Ann can now talk to the agent on telegram."
    assert "no longer works" in await client.use("/pairing refuse telegram 8")
    assert await client.use("/pairing") == "There are no pairing requests."
    assert "isn't a valid code" in await client.use("/pairing approve telegram ABCDEFGH")
    assert "/pairing approve PLATFORM CODE" in await client.use("/pairing approve")


async def test_browser_is_signed_in_by_its_code(client: ChatClient) -> None:
    store = client.application.store
    offered = await store.write(lambda tx: offer_browser_code(tx, "Firefox on Linux"))
    assert offered is not None
    assert ("approve web ", "then the code") in await client.offers("pairing")
    assert await client.use(f"/pairing approve web {offered[0]}") == "Firefox on Linux is now signed in as you."
    assert digest_token(offered[1]) in await store.read(read_browsers)
    assert "`people` has no `eve`" in await client.use(f"/pairing approve web {offered[0]} eve")

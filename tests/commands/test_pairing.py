"""`/pairing`: the owner answers requests of people and browsers from any chat."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.commands.command_fixture import Desk, open_desk

from talaria.access.browsers import digest_token, read_browsers
from talaria.access.pairing import offer_browser_code, offer_code
from talaria.contracts.stores.access import PairedPerson
from talaria.testing.model_server import ModelServer


@pytest.fixture
async def desk(tmp_path: Path, server: ModelServer) -> AsyncIterator[Desk]:
    async with open_desk(tmp_path, server) as desk:
        yield desk


async def test_pairing_requests_are_listed_approved_and_refused(desk: Desk) -> None:
    store = desk.application.store
    assert await desk.use("/pairing") == "There are no pairing requests."
    code = await store.write(lambda tx: offer_code(tx, PairedPerson("telegram", "7", "Ann")))
    await store.write(lambda tx: offer_code(tx, PairedPerson("telegram", "8", "Ben")))
    assert "telegram: Ann (`7`)" in await desk.use("/pairing")
    assert await desk.use(f"/pairing approve telegram {code}") == "Ann can now talk to the agent on telegram."
    assert "no longer works" in await desk.use("/pairing refuse telegram 8")
    assert await desk.use("/pairing") == "There are no pairing requests."
    assert "isn't a valid code" in await desk.use("/pairing approve telegram ABCDEFGH")
    assert "/pairing approve PLATFORM CODE" in await desk.use("/pairing approve")


async def test_browser_is_signed_in_by_its_code(desk: Desk) -> None:
    store = desk.application.store
    offered = await store.write(lambda tx: offer_browser_code(tx, "Firefox on Linux"))
    assert offered is not None
    assert ("approve web ", "then the code") in await desk.offers("pairing")
    assert await desk.use(f"/pairing approve web {offered[0]}") == "Firefox on Linux is now signed in as you."
    assert digest_token(offered[1]) in await store.read(read_browsers)
    assert "`people` has no `eve`" in await desk.use(f"/pairing approve web {offered[0]} eve")

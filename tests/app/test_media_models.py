"""The cost of images: reserved before, counted after, and free only for a free provider."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta

import pytest
from tests.providers.test_voice import at

from talaria.app.media_models import MeteredImageMaker
from talaria.contracts.provider import ModelInfo
from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.stores.turns import Cap
from talaria.core.errors import OverBudget, ProviderOverloaded, Refused
from talaria.core.ids import SessionId
from talaria.http_client.client import HttpPool
from talaria.providers.media import OpenAIImages
from talaria.runtime.turn_environment import StoredBudget
from talaria.testing.model_server import Fail, ModelServer
from talaria.testing.model_server.media import PNG
from talaria.testing.wait import until

PRICE = 40_000  # millionths of a dollar
ACCOUNT = "all"


@pytest.fixture
async def http() -> AsyncIterator[HttpPool]:
    pool = HttpPool()
    yield pool
    await pool.close()


class Images:
    """A scripted image provider, and the session that uses it under a cap; a cap of 0 is none."""

    def __init__(self, store: Store, server: ModelServer, http: HttpPool) -> None:
        self.store = store
        self.server = server
        self._maker = OpenAIImages(at(server), http, "draws")

    async def session(self) -> SessionId:
        return (await self.store.write(lambda tx: tx.sessions.create(NewSession(source="test")))).id

    def metered(self, session: SessionId, limit: int, info: ModelInfo) -> MeteredImageMaker:
        caps = (Cap(ACCOUNT, limit),) if limit else ()
        return MeteredImageMaker(self._maker, info, StoredBudget(self.store, caps), self.store, session)

    async def spent(self) -> int:
        return await self.store.read(lambda tx: tx.ledger.read_spent(ACCOUNT))

    async def usage(self, session: SessionId) -> tuple[int, int]:
        found = await self.store.read(lambda tx: tx.sessions.get(session))
        assert found is not None
        return found.usage.calls, found.usage.cost_microdollars


@pytest.fixture
def images(store: Store, server: ModelServer, http: HttpPool) -> Images:
    return Images(store, server, http)


PRICED = ModelInfo(name="draws", output_price=PRICE)


async def test_images_count_towards_a_cap_until_it_is_reached(images: Images) -> None:
    session = await images.session()
    maker = images.metered(session, 2 * PRICE, PRICED)
    await maker.make("one")
    await maker.make("two")
    with pytest.raises(OverBudget):
        await maker.make("three")
    assert len(images.server.images.requests) == 2
    assert await images.spent() == 2 * PRICE
    assert await images.usage(session) == (2, 2 * PRICE)


async def test_an_image_without_a_price_is_refused_under_a_cap(images: Images) -> None:
    maker = images.metered(await images.session(), PRICE, ModelInfo(name="draws"))
    with pytest.raises(Refused, match=r"talaria config set images\.price"):
        await maker.make("one")
    assert images.server.images.requests == []


async def test_image_without_a_price_and_a_cap_is_counted_as_unpriced(images: Images) -> None:
    session = await images.session()
    await images.metered(session, 0, ModelInfo(name="draws")).make("one")
    assert await images.usage(session) == (1, 0)
    today = datetime.now(UTC).date()
    days = await images.store.read(
        lambda tx: tx.usage.by_day("model", today - timedelta(days=9_999), today + timedelta(days=9_999))
    )
    assert [(day.member, day.unpriced_calls) for day in days] == [("draws", 1)]


async def test_images_of_a_free_provider_are_allowed_under_any_cap(images: Images) -> None:
    maker = images.metered(await images.session(), 1, ModelInfo(name="draws", free=True))
    assert (await maker.make("one")).content == PNG
    assert await images.spent() == 0


async def test_a_failed_image_costs_nothing_and_an_interrupted_one_counts(images: Images) -> None:
    maker = images.metered(await images.session(), PRICE, PRICED)
    images.server.images.faults.append(Fail(503))
    with pytest.raises(ProviderOverloaded):
        await maker.make("one")
    assert await images.spent() == 0
    images.server.images.open.clear()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(maker.make("two"))
        await until(lambda: len(images.server.images.requests) == 2)
        task.cancel()
    assert await images.spent() == PRICE

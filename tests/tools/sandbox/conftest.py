"""Background processes for tests of sandboxes."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.storage.engines import Place
from tests.tools.process.process_fixture import Bench, supervised

from talaria.testing.clock import SettableClock


@pytest.fixture
async def bench(sqlite_place: Place, clock: SettableClock, tmp_path: Path) -> AsyncIterator[Bench]:
    store = sqlite_place.open_store(clock)
    async with supervised(store, tmp_path) as bench:
        yield bench
        for process in await bench.listed():
            await bench.supervisor.kill(process, "conversation")
    await store.close()

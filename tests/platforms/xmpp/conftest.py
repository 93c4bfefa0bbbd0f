from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.platforms.xmpp.far_side import XmppFarSide, xmpp_far_side

from talaria.contracts.store import Store
from talaria.testing.system_servers import PROSODY, PROSODY_MISSING, ProsodyServer, prosody


@pytest.fixture(scope="session")
def xmpp_server() -> Iterator[ProsodyServer]:
    if not Path(PROSODY).exists():
        pytest.skip(PROSODY_MISSING)
    with prosody() as server:
        yield server


@pytest.fixture
async def far_side(xmpp_server: ProsodyServer, store: Store) -> AsyncIterator[XmppFarSide]:
    async with xmpp_far_side(xmpp_server, store) as there:
        yield there

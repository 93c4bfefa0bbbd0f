from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.platforms.irc.far_side import IrcFarSide, irc_far_side

from talaria.contracts.store import Store
from talaria.testing.system_servers import ATHEME, INSPIRCD, NGIRCD, IrcServer, network_with_services, ngircd


@pytest.fixture(scope="session")
def plain_server() -> Iterator[IrcServer]:
    """A server without accounts."""
    if not Path(NGIRCD).exists():
        pytest.skip("ngIRCd is not installed; `make test` installs it as root")
    with ngircd() as server:
        yield server


@pytest.fixture(scope="session")
def services_server() -> Iterator[IrcServer]:
    """A server with accounts, SASL and TLS."""
    if not (Path(INSPIRCD).exists() and Path(ATHEME).exists()):
        pytest.skip("InspIRCd and Atheme are not installed; `make test` installs them as root")
    with network_with_services() as server:
        yield server


@pytest.fixture
async def plain_side(plain_server: IrcServer, store: Store) -> AsyncIterator[IrcFarSide]:
    async with irc_far_side(plain_server, store) as there:
        yield there


@pytest.fixture
async def services_side(services_server: IrcServer, store: Store) -> AsyncIterator[IrcFarSide]:
    async with irc_far_side(services_server, store) as there:
        yield there

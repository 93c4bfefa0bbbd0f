"""A mail server for the tests of this worker, and accounts that are new for every test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.platforms.email.far_side import MailFarSide, mail_far_side

from talaria.contracts.store import Store
from talaria.testing.mail_server import MISSING, MailServer, find_mail_server


@pytest.fixture(scope="session")
def mail_server() -> Iterator[MailServer]:
    if not find_mail_server():
        pytest.skip(MISSING)
    with MailServer() as server:
        yield server


@pytest.fixture
async def far_side(mail_server: MailServer, store: Store, tmp_path: Path) -> AsyncIterator[MailFarSide]:
    async with mail_far_side(mail_server, store, tmp_path / "account") as there:
        yield there

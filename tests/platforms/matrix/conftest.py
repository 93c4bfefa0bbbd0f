"""Fixtures: one homeserver per run, people who share it, and a new bot account for every test."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.platforms.matrix.matrix_clients import BotAccount, Person

from talaria.core.ids import new_id
from talaria.testing.homeserver import MISSING, HomeserverClient, find_homeserver, shared_homeserver


@pytest.fixture(scope="session")
def homeserver_client(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[HomeserverClient]:
    if find_homeserver() is None:
        pytest.skip(MISSING)
    root = tmp_path_factory.getbasetemp()
    if hasattr(request.config, "workerinput"):
        root = root.parent  # the same for all workers of this run
    with shared_homeserver(root / "homeserver") as client:
        yield client


@pytest.fixture(scope="session")
def alice(homeserver_client: HomeserverClient) -> Person:
    return Person(homeserver_client, homeserver_client.register(f"alice-{new_id()}".lower()))


@pytest.fixture(scope="session")
def carol(homeserver_client: HomeserverClient) -> Person:
    return Person(homeserver_client, homeserver_client.register(f"carol-{new_id()}".lower()))


@pytest.fixture
def bot_account(homeserver_client: HomeserverClient, alice: Person, tmp_path: Path) -> BotAccount:
    """A bot account that accepts the invitations of Alice."""
    return BotAccount(
        homeserver_client, homeserver_client.register(f"bot-{new_id()}".lower()), tmp_path, (alice.user_id,)
    )

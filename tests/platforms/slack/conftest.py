"""A workspace on loopback, and the adapter of its app."""

from collections.abc import AsyncIterator

import pytest
from tests.platforms.slack.far_side import settings_for

from talaria.platforms.slack.adapter import Slack
from talaria.testing.slack_server import SlackServer, User

COMMANDS = [("status", "How things are"), ("new", "Begin anew"), ("help", "What there is")]


@pytest.fixture
async def server() -> AsyncIterator[SlackServer]:
    async with SlackServer() as there:
        yield there
    assert there.hub.complaints == []


@pytest.fixture
def ann(server: SlackServer) -> User:
    return server.user("Ann")


@pytest.fixture
async def slack(server: SlackServer) -> AsyncIterator[Slack]:
    platform = Slack(settings_for(server), COMMANDS)
    yield platform
    await platform.close()

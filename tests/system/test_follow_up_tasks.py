"""Follow-ups of a turn delay no reply, no other chat and no health check, however long they take."""

import asyncio
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.app.program import Program
from tests.system.gateway_workers import gateway_program, worker

from talaria.contracts.platform import PlatformCapabilities
from talaria.runtime.workers import read_workers
from talaria.storage.sqlite.open import open_sqlite
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.model_server.exchange import Received
from talaria.testing.wait import LIMIT

NETWORK = PlatformCapabilities(text_limit=4096, idempotent=True)
LONG = "a long story " * 300
SMALL = "[models.scripted]\ncontext_limit = 3000\n"


class BlockedFollowUps:
    """Follow-ups of one kind, whose model calls are answered only after ``may_end``."""

    def __init__(self, server: ModelServer, is_one: Callable[[str], bool]) -> None:
        self._is_one = is_one
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        server.answering(self._answer)

    async def _answer(self, received: Received) -> Say:
        body = received.body.decode()
        if self._is_one(body):
            self.begun.set()
            await self.may_end.wait()
            return Say("It was a long story, told in the harbour, about a ship and its crew.")
        return Say(LONG if "story" in received.question else f"re: {received.question[:40]}")


@pytest.fixture
async def network() -> AsyncIterator[LoopbackNetwork]:
    async with LoopbackNetwork(NETWORK) as network:
        yield network


def is_title(body: str) -> bool:
    return "a title of at most six words" in body


def is_judge(body: str) -> bool:
    return "You judge whether an agent" in body


def is_summary(body: str) -> bool:
    return "Keep numbers, paths, names and quotations exact" in body


@pytest.mark.parametrize(
    ("messages", "is_one"),
    [(("hello",), is_title), (("/goal sail round the world",), is_judge), (("a story", "another story"), is_summary)],
    ids=["title", "judge", "compaction"],
)
async def test_slow_follow_up_delays_no_reply_no_other_chat_and_no_health_check(
    tmp_path: Path,
    server: ModelServer,
    network: LoopbackNetwork,
    messages: tuple[str, ...],
    is_one: Callable[[str], bool],
) -> None:
    follow_ups = BlockedFollowUps(server, is_one)
    program = gateway_program(tmp_path, server, network, access='owners = ["loopback:ann", "loopback:bob"]', more=SMALL)
    async with worker(program):
        for text in messages:
            count = len(network.posts)
            network.say("ann", text)
            await network.posted(count + 1)
        async with asyncio.timeout(LIMIT):
            await follow_ups.begun.wait()
        network.say("ann", "are you there?")
        await network.until(lambda: "re: are you there?" in network.shown("ann"))
        network.say("bob", "and you?", sender="bob")
        await network.until(lambda: "re: and you?" in network.shown("bob"))
        assert await asyncio.to_thread(health, program) == 200
        assert not follow_ups.may_end.is_set()
        follow_ups.may_end.set()


def health(program: Program) -> int:
    """Return the HTTP status of the gateway's health check."""
    database = open_sqlite(program.home / "profiles" / "default" / "talaria.db")
    try:
        (one,) = database.read(read_workers)
    finally:
        database.close()
    with urllib.request.urlopen(f"{one.address}/health", timeout=10) as answer:
        return int(answer.status)

"""Delivery killed at random moments: no reply is lost, and at most the one in doubt is sent twice."""

import random
from collections import Counter

import pytest
from msgspec import structs
from tests.app import warm_program
from tests.gateway.outbound.delivery_fixture import OutboxFixture
from tests.storage.engines import StoreLocation

from talaria.contracts.clock import SystemClock
from talaria.core.addresses import Address
from talaria.testing.loopback_platform import CHATTY, LoopbackNetwork

KILLS = 6
CHATS = 5
REPLIES = 120


@pytest.fixture
def store_location(new_store_location: StoreLocation) -> StoreLocation:
    """A store that no process has opened yet, on each engine in turn."""
    return new_store_location


@pytest.mark.parametrize("idempotent", [True, False])
async def test_repeatedly_killed_delivery_loses_no_reply(store_location: StoreLocation, idempotent: bool) -> None:
    store = store_location.open_store(SystemClock())
    outbox = OutboxFixture(store)
    async with LoopbackNetwork(structs.replace(CHATTY, idempotent=idempotent, text_limit=100)) as network:
        for number in range(REPLIES):
            # Every fourth reply has two pieces.
            text = f"reply {number}" if number % 4 else f"reply {number} {'x' * 88}\n\nrest {number}"
            await outbox.reply(f"t{number}", text, Address("loopback", str(number % CHATS)))
        network.disrupt(delay=0.02)
        for kill in range(KILLS + 1):
            child = await warm_program.start_module(
                "tests.gateway.outbound.delivery_child", network.address, str(idempotent), *store_location.arguments
            )
            try:
                if kill == KILLS:
                    network.disrupt()
                    await outbox.until_empty()
                else:
                    goal = len(network.posts) + random.randint(5, 12)
                    await network.posted(goal)
            finally:
                child.kill()
                await child.wait()
        check(network, idempotent=idempotent)
    await store.close()


def check(network: LoopbackNetwork, *, idempotent: bool) -> None:
    posted = Counter(post.key for post in network.posts)
    expected = {f"t{number}:1" for number in range(REPLIES)} | {f"t{number}:2" for number in range(0, REPLIES, 4)}
    assert set(posted) == expected
    for chat in range(CHATS):
        keys_in_chat = [post.key for post in network.posts if post.address.chat_id == str(chat)]
        assert len(keys_in_chat) - len(set(keys_in_chat)) <= (
            0 if idempotent else KILLS
        )  # one in doubt for each chat and crash
        keys = list(dict.fromkeys(post.key for post in network.posts if post.address.chat_id == str(chat)))
        assert keys == sorted(keys, key=lambda key: [int(part) for part in key[1:].split(":")])

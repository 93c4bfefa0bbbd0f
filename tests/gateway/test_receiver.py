"""Receiver of a network: which worker receives, takeover after a crash, and order per chat."""

import asyncio
import subprocess
from datetime import timedelta

from tests.storage.engines import StoreLocation
from tests.storage.slow_store import SlowStore

from talaria.contracts.clock import SystemClock
from talaria.contracts.platform import Incoming, PlatformCapabilities
from talaria.core.ids import new_worker_id
from talaria.gateway.receiver import Receiver
from talaria.testing.loopback_platform import LoopbackNetwork

EXCLUSIVE = PlatformCapabilities(text_limit=4096, exclusive=True)
LONG = timedelta(hours=1)


def dead_worker() -> str:
    """Return the id of a worker whose process has ended."""
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    machine, _, _ = new_worker_id().rsplit(":", 2)
    return f"{machine}:{process.pid}:0000000"


async def test_network_of_a_killed_worker_is_taken_over_at_once(store_location: StoreLocation) -> None:
    theirs, ours = (
        store_location.open_store(SystemClock(), dead_worker()),
        store_location.open_store(SystemClock(), new_worker_id()),
    )
    await theirs.write(lambda tx: tx.leases.acquire("platform:loopback", LONG))
    received: list[str] = []

    async def receive(incoming: Incoming) -> str:
        received.append(incoming.text)
        return ""

    async with LoopbackNetwork(EXCLUSIVE) as server, asyncio.TaskGroup() as group:
        serving = group.create_task(Receiver(server.platform(), ours, receive, lease=LONG).serve())
        server.say("ann", "hello")
        await server.until(lambda: received == ["hello"])
        serving.cancel()
    await theirs.close()
    await ours.close()


async def test_chats_are_received_in_parallel_and_each_chat_in_order(store_location: StoreLocation) -> None:
    store = store_location.open_store(SystemClock(), new_worker_id())
    received: dict[str, list[str]] = {}
    running: set[str] = set()
    most = 0

    async def receive(incoming: Incoming) -> str:
        nonlocal most
        chat = incoming.address.chat_id
        assert chat not in running
        running.add(chat)
        most = max(most, len(running))
        await store.write(lambda tx: tx.named_values.put("test", chat, incoming.text))
        received.setdefault(chat, []).append(incoming.text)
        running.discard(chat)
        return ""

    async with LoopbackNetwork(PlatformCapabilities(text_limit=4096)) as server, asyncio.TaskGroup() as group:
        for number in range(200):
            server.say(f"chat-{number % 20}", str(number // 20))
        serving = group.create_task(Receiver(server.platform(), store, receive, lease=LONG).serve())
        await server.until(lambda: server.unconfirmed == 0)
        serving.cancel()
    assert received == {f"chat-{number}": [str(position) for position in range(10)] for number in range(20)}
    assert most > 1
    await store.close()


async def test_worker_stopped_while_acquiring_a_network_releases_its_lease(store_location: StoreLocation) -> None:
    store = store_location.open_store(SystemClock(), new_worker_id())
    slow = SlowStore(store)

    async def receive(incoming: Incoming) -> str:
        raise AssertionError("received after it was stopped")

    async with LoopbackNetwork(EXCLUSIVE) as server, asyncio.TaskGroup() as group:
        serving = group.create_task(Receiver(server.platform(), slow, receive, lease=LONG).serve())
        await slow.committed.wait()
        serving.cancel()
        slow.resumed.set()
    assert await store.read(lambda tx: tx.leases.get("platform:loopback")) is None
    await store.close()

"""One network at work: who receives from it, and what becomes of that when a worker dies."""

import asyncio
import subprocess
from datetime import timedelta

from tests.storage.engines import Place
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


async def test_a_network_that_a_killed_worker_received_from_is_taken_over_at_once(place: Place) -> None:
    theirs, ours = place.open_store(SystemClock(), dead_worker()), place.open_store(SystemClock(), new_worker_id())
    await theirs.write(lambda tx: tx.leases.acquire("platform:loopback", LONG))
    heard: list[str] = []

    async def take(incoming: Incoming) -> str:
        heard.append(incoming.text)
        return ""

    async with LoopbackNetwork(EXCLUSIVE) as far, asyncio.TaskGroup() as group:
        serving = group.create_task(Receiver(far.platform(), ours, take, lease=LONG).serve())
        far.say("ann", "hello")
        await far.until(lambda: heard == ["hello"])
        serving.cancel()
    await theirs.close()
    await ours.close()


async def test_people_who_write_at_the_same_moment_are_heard_side_by_side_each_in_their_order(place: Place) -> None:
    store = place.open_store(SystemClock(), new_worker_id())
    heard: dict[str, list[str]] = {}
    running: set[str] = set()
    most = 0

    async def take(incoming: Incoming) -> str:
        nonlocal most
        chat = incoming.address.chat_id
        assert chat not in running
        running.add(chat)
        most = max(most, len(running))
        await store.write(lambda tx: tx.named_values.put("test", chat, incoming.text))
        heard.setdefault(chat, []).append(incoming.text)
        running.discard(chat)
        return ""

    async with LoopbackNetwork(PlatformCapabilities(text_limit=4096)) as far, asyncio.TaskGroup() as group:
        for number in range(200):
            far.say(f"chat-{number % 20}", str(number // 20))
        serving = group.create_task(Receiver(far.platform(), store, take, lease=LONG).serve())
        await far.until(lambda: far.unconfirmed == 0)
        serving.cancel()
    assert heard == {f"chat-{number}": [str(place) for place in range(10)] for number in range(20)}
    assert most > 1
    await store.close()


async def test_a_worker_that_is_stopped_while_it_acquires_a_network_releases_it(place: Place) -> None:
    store = place.open_store(SystemClock(), new_worker_id())
    slow = SlowStore(store)

    async def take(incoming: Incoming) -> str:
        raise AssertionError("it was stopped before it received anything")

    async with LoopbackNetwork(EXCLUSIVE) as far, asyncio.TaskGroup() as group:
        serving = group.create_task(Receiver(far.platform(), slow, take, lease=LONG).serve())
        await slow.committed.wait()
        serving.cancel()
        slow.resumed.set()
    assert await store.read(lambda tx: tx.leases.get("platform:loopback")) is None
    await store.close()

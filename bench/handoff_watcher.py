"""Cost of the handoff watcher in an idle process, compared with the same process without it.

``python -m bench.handoff_watcher with|without ENGINE ADDRESS SECONDS`` is that process.
"""

import asyncio
import sys
from pathlib import Path
from time import monotonic, process_time

from talaria.contracts.platform import PlatformCapabilities
from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.ids import SessionId, new_worker_id
from talaria.gateway.chats.chat import Chat
from talaria.gateway.chats.registry import ChatRegistry
from talaria.gateway.handoff_target import GatewayHandoffTarget
from talaria.handoff.worker import HandoffWorker
from talaria.runtime.agent_cache import AgentSpec
from talaria.settings.model import LiveSettings, Settings
from talaria.storage.postgres.open import open_postgres_store
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.loopback_platform import LoopbackPlatform, LoopbackSettings

_PERCENT = 100
_WARM_UP_SECONDS = 2.0


async def watcher_share(engine: str, address: str, seconds: float) -> float:
    """Return the percentage of a core that the watcher uses, including its subscriptions."""
    both = [await _share(mode, engine, address, seconds) for mode in ("with", "without")]
    return both[0] - both[1]


async def _share(mode: str, engine: str, address: str, seconds: float) -> float:
    arguments = ["-m", "bench.handoff_watcher", mode, engine, address, str(seconds)]
    child = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdout=asyncio.subprocess.PIPE)
    output, _ = await child.communicate()
    return float(output)


async def _serve(mode: str, engine: str, address: str, seconds: float) -> None:
    store = open_sqlite_store(Path(address)) if engine == "sqlite" else open_postgres_store(address)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(_watch(store, group)) if mode == "with" else None
        await asyncio.sleep(_WARM_UP_SECONDS)
        begun, used = monotonic(), process_time()
        await asyncio.sleep(seconds)
        share = (process_time() - used) / (monotonic() - begun) * _PERCENT
        if watching is not None:
            watching.cancel()
    print(share, flush=True)
    await store.close()


async def _watch(store: Store, group: asyncio.TaskGroup) -> None:
    """Watch for handoffs as a gateway does; none is requested."""
    settings = LiveSettings(Settings())
    platform = LoopbackPlatform(
        LoopbackSettings(address="127.0.0.1:1", abilities=PlatformCapabilities(text_limit=4096))
    )
    chats = ChatRegistry(store, new_worker_id(), _make_no_chat, _make_no_agent, group, settings)
    target = GatewayHandoffTarget(
        store, chats, {platform.name: platform}, lambda: settings.current, lambda _platform, name: f"/{name}"
    )
    await HandoffWorker(store, target).serve()


def _make_no_chat(_key: str, _address: Address) -> Chat:
    raise AssertionError("no handoff was requested")


async def _make_no_agent(_address: Address, _session_id: SessionId) -> AgentSpec:
    raise AssertionError("no handoff was requested")


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])))

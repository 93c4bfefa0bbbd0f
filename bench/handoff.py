"""Delay until a gateway executes a handoff that another process requests, and the cost of waiting for one."""

import asyncio
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

from bench.gateway_home import prepare_home, start_gateway
from bench.handoff_watcher import watcher_share
from bench.measure import Measurement, cpu_seconds
from talaria.contracts.platform import PlatformCapabilities
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Text
from talaria.handoff.service import HANDOFFS
from talaria.sessions.chat_directory import HomeChat, write_home
from talaria.storage.postgres.open import open_postgres_store
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.clock import NOON
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.postgres import MISSING, PostgresServer, find_postgres

NAME = "handoff"
_ABILITIES = PlatformCapabilities(text_limit=4096, threads=True, idempotent=True)
_PERCENT = 100
_OTHERS = 10_000


def run(quick: bool) -> list[Measurement]:
    """Measure with SQLite, and with PostgreSQL where there is one."""
    rounds, seconds = (5, 5) if quick else (40, 30)
    figures = asyncio.run(_measure("SQLite", "", 200, rounds, seconds))
    if find_postgres() is None:
        print(MISSING)
        return figures
    with PostgresServer() as server:
        return figures + asyncio.run(_measure("PostgreSQL", server.url, 100, rounds, seconds))


async def _measure(engine: str, url: str, goal: float, rounds: int, seconds: int) -> list[Measurement]:
    with TemporaryDirectory() as folder:
        async with ModelServer() as server, LoopbackNetwork(_ABILITIES) as network:
            server.answering(lambda _: Say("Here we are."))
            environment = prepare_home(Path(folder), server.url, network.address, _ABILITIES, server=url, lease=15.0)
            gateway = await start_gateway(environment)
            try:
                await network.until(lambda: network.receivers == 1, seconds=30)
                store = open_postgres_store(url) if url else open_sqlite_store(_file(Path(folder)))
                try:
                    figures = await _figures(engine, store, gateway.pid, goal, rounds, seconds)
                    await store.write(_others)
                finally:
                    await store.close()
            finally:
                gateway.terminate()
                await gateway.wait()
        kind, place = ("postgres", url) if url else ("sqlite", str(_file(Path(folder))))
        share = await watcher_share(kind, place, seconds)
        watching = f"{engine}: the watcher alone, idle, {_OTHERS:,} conversations"
        return [*figures, Measurement(watching, share, "% of a core", 0.5)]


async def _figures(engine: str, store: Store, pid: int, goal: float, rounds: int, seconds: int) -> list[Measurement]:
    claims, moves = [], []
    for _ in range(rounds):
        claimed, moved = await _handed_over(store)
        claims.append(claimed * 1000)
        moves.append(moved * 1000)
    await asyncio.sleep(2)
    before = cpu_seconds(pid)
    await asyncio.to_thread(sleep, seconds)
    idle = (cpu_seconds(pid) - before) / seconds * _PERCENT
    return [
        Measurement(f"{engine}: from request to claim, median of {rounds}", median(claims), "ms", goal),
        Measurement(f"{engine}: from request to the end of the move, median", median(moves), "ms", 1000),
        Measurement(f"{engine}: idle gateway, all of it", idle, "% of a core", 0.5),
    ]


async def _handed_over(store: Store) -> tuple[float, float]:
    """Ask for a handoff, and return after how many seconds it was claimed, and done."""
    began = perf_counter()
    session_id = await store.write(_asked)
    claimed = 0.0
    while True:
        state = await store.read(lambda tx: tx.handoffs.get_handoff_state(session_id))
        assert state is not None
        now = perf_counter() - began
        if state["state"] != "pending":
            claimed = claimed or now
        if state["state"] == "completed":
            return claimed, now
        assert state["state"] != "failed", state["error"]
        await asyncio.sleep(0.001)


def _asked(tx: Transaction) -> SessionId:
    write_home(tx, HomeChat(Address("loopback", "home")))
    session_id = tx.sessions.create(NewSession(source="cli", title="A boat")).id
    tx.messages.append(session_id, [Message(role="user", parts=(Text("Build a boat."),), at=NOON)])
    tx.handoffs.request_handoff(session_id, "loopback")
    tx.notify(HANDOFFS)
    return session_id


def _others(tx: Transaction) -> None:
    """Let there be many conversations that go nowhere."""
    for _ in range(_OTHERS):
        tx.sessions.create(NewSession(source="cli"))


def _file(home: Path) -> Path:
    return home / "profiles" / "default" / "talaria.db"

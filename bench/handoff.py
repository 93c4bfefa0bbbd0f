"""Delay until a gateway runs a handoff requested by another process, and the idle cost of the watcher."""

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
_OTHER_SESSIONS = 10_000


def run(quick: bool) -> list[Measurement]:
    """Measure with SQLite, and with PostgreSQL if it is installed."""
    rounds, seconds = (5, 5) if quick else (40, 30)
    measurements = asyncio.run(_measure("SQLite", "", 200, rounds, seconds))
    if find_postgres() is None:
        print(MISSING)
        return measurements
    with PostgresServer() as server:
        return measurements + asyncio.run(_measure("PostgreSQL", server.url, 100, rounds, seconds))


async def _measure(engine: str, url: str, goal: float, rounds: int, seconds: int) -> list[Measurement]:
    with TemporaryDirectory() as folder:
        async with ModelServer() as server, LoopbackNetwork(_ABILITIES) as network:
            server.answering(lambda _: Say("Here we are."))
            environment = prepare_home(Path(folder), server.url, network.address, _ABILITIES, server=url, lease=15.0)
            gateway = await start_gateway(environment)
            try:
                await network.until(lambda: network.receivers == 1, seconds=30)
                store = open_postgres_store(url) if url else open_sqlite_store(_store_file(Path(folder)))
                try:
                    measurements = await _measure_gateway(engine, store, gateway.pid, goal, rounds, seconds)
                    await store.write(_create_other_sessions)
                finally:
                    await store.close()
            finally:
                gateway.terminate()
                await gateway.wait()
        kind, address = ("postgres", url) if url else ("sqlite", str(_store_file(Path(folder))))
        share = await watcher_share(kind, address, seconds)
        label = f"{engine}: idle handoff watcher only, {_OTHER_SESSIONS:,} sessions"
        return [*measurements, Measurement(label, share, "% of a core", 0.5)]


async def _measure_gateway(
    engine: str, store: Store, pid: int, goal: float, rounds: int, seconds: int
) -> list[Measurement]:
    claims, completions = [], []
    for _ in range(rounds):
        claimed, completed = await _time_handoff(store)
        claims.append(claimed * 1000)
        completions.append(completed * 1000)
    await asyncio.sleep(2)
    before = cpu_seconds(pid)
    await asyncio.to_thread(sleep, seconds)
    idle = (cpu_seconds(pid) - before) / seconds * _PERCENT
    return [
        Measurement(f"{engine}: from request to claim, median of {rounds}", median(claims), "ms", goal),
        Measurement(f"{engine}: from request to completion, median", median(completions), "ms", 1000),
        Measurement(f"{engine}: idle gateway, whole process", idle, "% of a core", 0.5),
    ]


async def _time_handoff(store: Store) -> tuple[float, float]:
    """Request a handoff; return the seconds until it was claimed and until it was completed."""
    began = perf_counter()
    session_id = await store.write(_request_handoff)
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


def _request_handoff(tx: Transaction) -> SessionId:
    write_home(tx, HomeChat(Address("loopback", "home")))
    session_id = tx.sessions.create(NewSession(source="cli", title="A boat")).id
    tx.messages.append(session_id, [Message(role="user", parts=(Text("Build a boat."),), at=NOON)])
    tx.handoffs.request_handoff(session_id, "loopback")
    tx.notify(HANDOFFS)
    return session_id


def _create_other_sessions(tx: Transaction) -> None:
    """Create many sessions without a handoff."""
    for _ in range(_OTHER_SESSIONS):
        tx.sessions.create(NewSession(source="cli"))


def _store_file(home: Path) -> Path:
    return home / "profiles" / "default" / "talaria.db"

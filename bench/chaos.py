"""A gateway killed repeatedly while people write to it: is every message answered, once and in order?

One process on SQLite, and several workers on one PostgreSQL.
"""

import asyncio
import random
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, time
from types import TracebackType
from typing import Self

from bench.gateway_home import GatewayProcess, StartGateway, prepare_home, start_gateway
from bench.measure import Measurement
from talaria.contracts.platform import PlatformCapabilities
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import SessionFilter
from talaria.storage.postgres.open import open_postgres_store
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.postgres import MISSING, PostgresServer, find_postgres

NAME = "chaos"
PLAIN = PlatformCapabilities(text_limit=4096, buttons=True)
IDEMPOTENT = PlatformCapabilities(text_limit=4096, buttons=True, idempotent=True)
EXCLUSIVE = PlatformCapabilities(text_limit=4096, buttons=True, exclusive=True)
_PATIENCE = 120.0
_PAUSED = 2.5
_REPLY = "re: "


@dataclass(frozen=True)
class Storm:
    """How much is written, in how many chats, and how often the gateway is ended, and how.

    With SIGSTOP a worker is not ended but held up for longer than its leases last, and then continued. ``workers``
    serve at once; more than one need a ``server``, the address of a PostgreSQL.
    """

    messages: int
    chats: int
    kills: int
    by: signal.Signals = signal.SIGKILL
    abilities: PlatformCapabilities = PLAIN
    workers: int = 1
    server: str = ""

    @property
    def may_repeat(self) -> int:
        """How many replies may be posted twice: one for each chat whose sender could not say whether it had sent."""
        return 0 if self.by == signal.SIGTERM or self.abilities.idempotent else self.kills * self.chats


@dataclass(frozen=True)
class Damage:
    """What went wrong: messages without an answer, answered twice in the transcript, out of order, posted twice.

    ``waits`` are the seconds from each message to its answer, shortest first.
    """

    missing: int
    answered_twice: int
    out_of_order: int
    posted_twice: int
    kills: int
    seconds: float
    waits: tuple[float, ...]


def run(quick: bool) -> list[Measurement]:
    """Ride out every storm."""
    size = (200, 20, 8) if quick else (1000, 50, 20)
    figures: list[Measurement] = []
    for name, storm in (
        ("SIGKILL", Storm(*size)),
        ("SIGKILL, idempotent network", Storm(*size, abilities=IDEMPOTENT)),
        ("SIGTERM", Storm(*size, by=signal.SIGTERM)),
    ):
        figures += _measure_storm(name, storm, seed=len(figures))
    if find_postgres() is None:
        print(MISSING, flush=True)
        return figures
    for name, by, abilities in (
        ("3 workers, SIGKILL", signal.SIGKILL, EXCLUSIVE),
        ("3 workers, SIGKILL, all receive", signal.SIGKILL, PLAIN),
        ("3 workers, SIGSTOP", signal.SIGSTOP, EXCLUSIVE),
    ):
        with PostgresServer() as server:
            storm = Storm(*size, by=by, abilities=abilities, workers=3, server=server.url)
            figures += _measure_storm(name, storm, seed=len(figures))
    return figures


def _measure_storm(name: str, storm: Storm, *, seed: int) -> list[Measurement]:
    with TemporaryDirectory() as folder:
        damage = asyncio.run(run_storm(storm, Path(folder), seed=seed))
    middle, longest = damage.waits[len(damage.waits) // 2], damage.waits[-1]
    print(f"{name}: answered after {middle:.2f} s in the middle, {longest:.2f} s at most", flush=True)
    what = f"{name}: {storm.messages} messages, {storm.chats} chats, {damage.kills} ends"
    return [
        Measurement(f"{what}: missing", damage.missing, "", 0),
        Measurement(f"{what}: answered twice", damage.answered_twice, "", 0),
        Measurement(f"{what}: out of order", damage.out_of_order, "", 0),
        Measurement(f"{what}: posted twice", damage.posted_twice, "", storm.may_repeat),
    ]


async def run_storm(storm: Storm, home: Path, *, seed: int, start: StartGateway = start_gateway) -> Damage:
    """Let people write while gateways are ended at random moments and started again; return what that broke."""
    chance = random.Random(seed)
    async with ModelServer() as server, LoopbackNetwork(storm.abilities) as network:
        server.answering(lambda received: Say(f"{_REPLY}{received.question}"))
        environment = prepare_home(home, server.url, network.address, storm.abilities, server=storm.server)
        began = perf_counter()
        async with _Workers(environment, storm.workers, start) as workers, asyncio.TaskGroup() as group:
            writing = group.create_task(_write(network, storm, chance))
            for _ in range(storm.kills):
                await asyncio.sleep(chance.uniform(0.6, 1.6))
                await workers.disrupt(chance.randrange(storm.workers), storm.by)
            said = await writing
            wanted = storm.messages
            await network.until(lambda: len(set(_posted(network))) >= wanted, seconds=_PATIENCE)
        seconds = perf_counter() - began
    return await _damage(network, storm, home, said, seconds)


class _Workers:
    """Processes that serve the same chats."""

    def __init__(self, environment: dict[str, str], count: int, start: StartGateway) -> None:
        self._environment = environment
        self._start_gateway = start
        self._words = ("--worker",) if count > 1 else ()
        self._count = count
        self._processes: list[GatewayProcess] = []

    async def __aenter__(self) -> Self:
        self._processes = [await self._start() for _ in range(self._count)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            if process.returncode is None:
                process.terminate()
        for process in self._processes:
            await process.wait()

    async def disrupt(self, number: int, by: signal.Signals) -> None:
        """End one and start another in its place, or hold it up for a while."""
        process = self._processes[number]
        process.send_signal(by)
        if by == signal.SIGSTOP:
            await asyncio.sleep(_PAUSED)
            process.send_signal(signal.SIGCONT)
            return
        await process.wait()
        self._processes[number] = await self._start()

    async def _start(self) -> GatewayProcess:
        return await self._start_gateway(self._environment, *self._words)


async def _write(network: LoopbackNetwork, storm: Storm, chance: random.Random) -> dict[str, float]:
    """Write everything within about the time that the kills take; return when each answer was asked for."""
    pause = storm.kills * (_PAUSED + 1 if storm.by == signal.SIGSTOP else 1.2) / storm.messages
    said = {}
    for number in range(storm.messages):
        chat = f"c{number % storm.chats}"
        text = f"{chat} m{number // storm.chats}"
        said[f"{_REPLY}{text}"] = time()
        network.say(chat, text, sender=chat)
        await asyncio.sleep(chance.uniform(0, 2 * pause))
    return said


def _posted(network: LoopbackNetwork) -> list[str]:
    """Return the posted replies; notices about waiting turns all have the same text."""
    return [record.text for record in network.posts if record.text.startswith(_REPLY)]


async def _damage(network: LoopbackNetwork, storm: Storm, home: Path, said: dict[str, float], seconds: float) -> Damage:
    posted = Counter(_posted(network))
    answered = {record.text: record.at for record in reversed(network.posts)}
    wanted = [
        [f"{_REPLY}c{chat} m{number}" for number in range(len(range(chat, storm.messages, storm.chats)))]
        for chat in range(storm.chats)
    ]
    store = _store(storm, home)
    try:
        told = await store.read(_told)
    finally:
        await store.close()
    answers = Counter(answer for conversation in told for answer in conversation)
    return Damage(
        missing=sum(posted[text] == 0 or answers[text] == 0 for chat in wanted for text in chat),
        answered_twice=sum(count - 1 for count in answers.values()),
        out_of_order=sum(chat not in told for chat in wanted),
        posted_twice=sum(count - 1 for count in posted.values()),
        kills=storm.kills,
        seconds=seconds,
        waits=tuple(sorted(answered[text] - at for text, at in said.items() if text in answered)),
    )


def _store(storm: Storm, home: Path) -> Store:
    if storm.server:
        return open_postgres_store(storm.server)
    return open_sqlite_store(home / "profiles" / "default" / "talaria.db")


def _told(tx: Transaction) -> list[list[str]]:
    """Return the answers of each conversation in their order."""
    sessions = tx.sessions.find(SessionFilter(limit=None))
    stored = [tx.messages.load(session.id) for session in sessions]
    return [[one.message.text for one in each if one.message.role == "assistant"] for each in stored]

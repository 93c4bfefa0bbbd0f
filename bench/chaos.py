"""Gateway killed repeatedly while messages arrive: is every message answered, once and in order?

Measured with one process on SQLite, and with several workers on one PostgreSQL.
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
_TIMEOUT = 120.0
_PAUSE_SECONDS = 2.5
_REPLY = "re: "


@dataclass(frozen=True)
class ChaosScenario:
    """Number of messages, chats and kills, and the signal (``by``) that kills the gateways.

    With SIGSTOP a worker isn't killed but paused for longer than its leases last, and then continued. Several
    ``workers`` run at the same time; they need a ``server``, the URL of a PostgreSQL store.
    """

    messages: int
    chats: int
    kills: int
    by: signal.Signals = signal.SIGKILL
    abilities: PlatformCapabilities = PLAIN
    workers: int = 1
    server: str = ""

    @property
    def max_repeated_posts(self) -> int:
        """Number of replies that may be posted twice: one per chat and kill, unless the network is idempotent."""
        return 0 if self.by == signal.SIGTERM or self.abilities.idempotent else self.kills * self.chats


@dataclass(frozen=True)
class ChaosResult:
    """Counts of errors: no answer, two answers in the transcript, wrong order, two posts.

    ``waits`` are the seconds from each message to its answer, in ascending order.
    """

    missing: int
    answered_twice: int
    out_of_order: int
    posted_twice: int
    kills: int
    seconds: float
    waits: tuple[float, ...]


def run(quick: bool) -> list[Measurement]:
    """Run every scenario."""
    size = (200, 20, 8) if quick else (1000, 50, 20)
    measurements: list[Measurement] = []
    for name, scenario in (
        ("SIGKILL", ChaosScenario(*size)),
        ("SIGKILL, idempotent network", ChaosScenario(*size, abilities=IDEMPOTENT)),
        ("SIGTERM", ChaosScenario(*size, by=signal.SIGTERM)),
    ):
        measurements += _measure_scenario(name, scenario, seed=len(measurements))
    if find_postgres() is None:
        print(MISSING, flush=True)
        return measurements
    for name, by, abilities in (
        ("3 workers, SIGKILL", signal.SIGKILL, EXCLUSIVE),
        ("3 workers, SIGKILL, all receive", signal.SIGKILL, PLAIN),
        ("3 workers, SIGSTOP", signal.SIGSTOP, EXCLUSIVE),
    ):
        with PostgresServer() as server:
            scenario = ChaosScenario(*size, by=by, abilities=abilities, workers=3, server=server.url)
            measurements += _measure_scenario(name, scenario, seed=len(measurements))
    return measurements


def _measure_scenario(name: str, scenario: ChaosScenario, *, seed: int) -> list[Measurement]:
    with TemporaryDirectory() as folder:
        result = asyncio.run(run_chaos(scenario, Path(folder), seed=seed))
    median_wait, longest = result.waits[len(result.waits) // 2], result.waits[-1]
    print(f"{name}: wait for an answer: median {median_wait:.2f} s, longest {longest:.2f} s", flush=True)
    label = f"{name}: {scenario.messages} messages, {scenario.chats} chats, {result.kills} interruptions"
    return [
        Measurement(f"{label}: missing", result.missing, "", 0),
        Measurement(f"{label}: answered twice", result.answered_twice, "", 0),
        Measurement(f"{label}: out of order", result.out_of_order, "", 0),
        Measurement(f"{label}: posted twice", result.posted_twice, "", scenario.max_repeated_posts),
    ]


async def run_chaos(
    scenario: ChaosScenario, home: Path, *, seed: int, start: StartGateway = start_gateway
) -> ChaosResult:
    """Send messages while gateways are killed at random moments and restarted; return the errors."""
    chance = random.Random(seed)
    async with ModelServer() as server, LoopbackNetwork(scenario.abilities) as network:
        server.answering(lambda received: Say(f"{_REPLY}{received.question}"))
        environment = prepare_home(home, server.url, network.address, scenario.abilities, server=scenario.server)
        began = perf_counter()
        async with _Workers(environment, scenario.workers, start) as workers, asyncio.TaskGroup() as group:
            sending = group.create_task(_send_messages(network, scenario, chance))
            for _ in range(scenario.kills):
                await asyncio.sleep(chance.uniform(0.6, 1.6))
                await workers.disrupt(chance.randrange(scenario.workers), scenario.by)
            sent_at = await sending
            expected = scenario.messages
            await network.until(lambda: len(set(_list_replies(network))) >= expected, seconds=_TIMEOUT)
        seconds = perf_counter() - began
    return await _evaluate(network, scenario, home, sent_at, seconds)


class _Workers:
    """Gateway processes that serve the same chats."""

    def __init__(self, environment: dict[str, str], count: int, start: StartGateway) -> None:
        self._environment = environment
        self._start_gateway = start
        self._arguments = ("--worker",) if count > 1 else ()
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
        """Kill one process and start another instead, or pause it for a while."""
        process = self._processes[number]
        process.send_signal(by)
        if by == signal.SIGSTOP:
            await asyncio.sleep(_PAUSE_SECONDS)
            process.send_signal(signal.SIGCONT)
            return
        await process.wait()
        self._processes[number] = await self._start()

    async def _start(self) -> GatewayProcess:
        return await self._start_gateway(self._environment, *self._arguments)


async def _send_messages(network: LoopbackNetwork, scenario: ChaosScenario, chance: random.Random) -> dict[str, float]:
    """Send all messages in about the time that the kills take; return the send time by expected reply."""
    pause = scenario.kills * (_PAUSE_SECONDS + 1 if scenario.by == signal.SIGSTOP else 1.2) / scenario.messages
    sent_at = {}
    for number in range(scenario.messages):
        chat = f"c{number % scenario.chats}"
        text = f"{chat} m{number // scenario.chats}"
        sent_at[f"{_REPLY}{text}"] = time()
        network.say(chat, text, sender=chat)
        await asyncio.sleep(chance.uniform(0, 2 * pause))
    return sent_at


def _list_replies(network: LoopbackNetwork) -> list[str]:
    """Return the posted replies, without notices about waiting turns."""
    return [record.text for record in network.posts if record.text.startswith(_REPLY)]


async def _evaluate(
    network: LoopbackNetwork, scenario: ChaosScenario, home: Path, sent_at: dict[str, float], seconds: float
) -> ChaosResult:
    posted = Counter(_list_replies(network))
    answered = {record.text: record.at for record in reversed(network.posts)}
    expected = [
        [f"{_REPLY}c{chat} m{number}" for number in range(len(range(chat, scenario.messages, scenario.chats)))]
        for chat in range(scenario.chats)
    ]
    store = _open_store(scenario, home)
    try:
        answers_by_session = await store.read(_read_answers)
    finally:
        await store.close()
    answers = Counter(answer for session in answers_by_session for answer in session)
    return ChaosResult(
        missing=sum(posted[text] == 0 or answers[text] == 0 for chat in expected for text in chat),
        answered_twice=sum(count - 1 for count in answers.values()),
        out_of_order=sum(chat not in answers_by_session for chat in expected),
        posted_twice=sum(count - 1 for count in posted.values()),
        kills=scenario.kills,
        seconds=seconds,
        waits=tuple(sorted(answered[text] - at for text, at in sent_at.items() if text in answered)),
    )


def _open_store(scenario: ChaosScenario, home: Path) -> Store:
    if scenario.server:
        return open_postgres_store(scenario.server)
    return open_sqlite_store(home / "profiles" / "default" / "talaria.db")


def _read_answers(tx: Transaction) -> list[list[str]]:
    """Return the answers of each session in order."""
    sessions = tx.sessions.find(SessionFilter(limit=None))
    stored = [tx.messages.load(session.id) for session in sessions]
    return [[one.message.text for one in each if one.message.role == "assistant"] for each in stored]

"""Background work in many chats while the gateway is killed: is every result reported once?"""

import asyncio
import random
import re
import signal
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.gateway_home import StartGateway, prepare_home, start_gateway
from bench.measure import Measurement
from talaria.contracts.platform import PlatformCapabilities
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import SessionFilter
from talaria.core.messages import PROGRAM
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, ModelServer, Received, Say

NAME = "background-work"
_ABILITIES = PlatformCapabilities(text_limit=4096, buttons=True, idempotent=True)
_TIMEOUT = 90.0
_TASK_SECONDS = (0.2, 3.0)
_RESULT = re.compile(r"\b(?:answer|process)-\d+\b")
_REPORT = "Your background work reports"


@dataclass(frozen=True)
class RestartScenario:
    """Number of chats, and how often their gateway is killed."""

    chats: int
    kills: int

    @property
    def expected(self) -> Counter[tuple[str, str]]:
        """The expected reports: the answer of a task and the end of a process in each chat, once."""
        numbers = range(self.chats)
        return Counter((f"c{number}", f"{kind}-{number}") for number in numbers for kind in ("answer", "process"))


@dataclass(frozen=True)
class RestartResult:
    """Differences between expected and reported results.

    ``missing`` and ``unexpected`` count results in the transcripts, ``undelivered`` those that no chat shows, and
    ``unfinished`` work that is still stored as running or unreported.
    """

    missing: int
    unexpected: int
    undelivered: int
    unfinished: int
    seconds: float


def run(quick: bool) -> list[Measurement]:
    """Start a process and a task in each of 100 chats, and kill their gateway three times."""
    scenario = RestartScenario(30 if quick else 100, 3)
    with TemporaryDirectory() as folder:
        result = asyncio.run(run_restarts(scenario, Path(folder), seed=1))
    print(f"{scenario.chats} chats got all results within {result.seconds:.1f} s", flush=True)
    label = f"{scenario.chats} chats, {scenario.kills} kills"
    return [
        Measurement(f"{label}: results missing in the session", result.missing, "", 0),
        Measurement(f"{label}: results repeated or in the wrong session", result.unexpected, "", 0),
        Measurement(f"{label}: results not posted in the chat", result.undelivered, "", 0),
        Measurement(f"{label}: work still stored as unfinished", result.unfinished, "", 0),
    ]


async def run_restarts(
    scenario: RestartScenario, home: Path, *, seed: int, start: StartGateway = start_gateway
) -> RestartResult:
    """Run the scenario on a new profile in ``home``, and compare the reports with the expected ones."""
    async with ModelServer() as server, LoopbackNetwork(_ABILITIES) as network:
        model = _ScriptedModel(scenario.chats, random.Random(seed))
        server.answering(model.answer)
        environment = prepare_home(home, server.url, network.address, _ABILITIES)
        began = perf_counter()
        process = await start(environment)
        try:
            for number in range(scenario.chats):
                network.say(f"c{number}", f"begin {number}", sender="owner")
            for kill in range(scenario.kills):
                await _wait_for_kill(kill, scenario, server, network, model)
                process.send_signal(signal.SIGKILL)
                await process.wait()
                process = await start(environment)
            with suppress(TimeoutError):  # results that arrive later count as undelivered
                await network.until(lambda: not scenario.expected - _read_posts(network), seconds=_TIMEOUT)
            seconds = perf_counter() - began
        finally:
            process.terminate()
            await process.wait()
        posted = _read_posts(network)
    store = open_sqlite_store(home / "profiles" / "default" / "talaria.db")
    try:
        reported, unfinished = await store.read(_read_reports), await store.read(_count_unfinished)
    finally:
        await store.close()
    missing, unexpected = scenario.expected - reported, reported - scenario.expected
    undelivered = scenario.expected - posted
    return RestartResult(missing.total(), unexpected.total(), undelivered.total(), unfinished, seconds)


async def _wait_for_kill(
    kill: int, scenario: RestartScenario, server: ModelServer, network: LoopbackNetwork, model: "_ScriptedModel"
) -> None:
    """Wait for the moment of a kill: while work starts, while tasks run, or while results are reported.

    A tool call interrupted by two kills isn't run a third time, and then it is unknown whether its task was started. So
    the second kill waits for the results of all calls that the first one may have interrupted.
    """
    match kill % 3:
        case 0:
            await server.arrived(len(server.received) + scenario.chats)
        case 1:
            await model.all_started.wait()
        case _:
            undelivered = (scenario.expected - _read_posts(network)).total()
            await network.until(
                lambda: (scenario.expected - _read_posts(network)).total() <= undelivered * 2 // 3, seconds=_TIMEOUT
            )


class _ScriptedModel:
    """Scripted model: starts a process and a task, answers tasks slowly, and repeats reported results.

    ``all_started`` is set when the calls that start both have results in all ``chats``.
    """

    def __init__(self, chats: int, chance: random.Random) -> None:
        self.all_started = asyncio.Event()
        self._chats = chats
        self._chance = chance
        self._started: set[str] = set()

    async def answer(self, received: Received) -> Say:
        question = received.question
        if _REPORT in question:
            return Say(" ".join(_RESULT.findall(question)))
        verb, _, number = question.partition(" ")
        if verb == "task":
            await asyncio.sleep(self._chance.uniform(*_TASK_SECONDS))
            return Say(f"answer-{number}")
        last = received.json["messages"][-1]
        started = Ask("terminal", {"command": f"sleep 2 # process-{number}", "background": True})
        if last["role"] != "tool":
            tasks = [{"goal": f"task {number}"}]
            return Say(calls=[Ask("delegate_task", {"tasks": tasks, "background": True}), started])
        if last["content"].startswith("Interrupted"):  # the process may have been started or not
            return Say(calls=[Ask("process", {"action": "list"})])
        if last["content"] == "No background processes.":
            return Say(calls=[started])
        self._started.add(number)
        if len(self._started) == self._chats:
            self.all_started.set()
        return Say("Both go on.")


def _read_posts(network: LoopbackNetwork) -> Counter[tuple[str, str]]:
    posts = [(post.address.chat_id, post.text) for post in network.posts]
    return Counter((chat, found) for chat, text in posts for found in _RESULT.findall(text))


def _read_reports(tx: Transaction) -> Counter[tuple[str, str]]:
    """Return the results reported in the session of each chat."""
    reported: Counter[tuple[str, str]] = Counter()
    for session in tx.sessions.find(SessionFilter(limit=None)):
        for binding in tx.bindings.of_session(session.id):
            messages = [stored.message for stored in tx.messages.load(session.id)]
            reports = [one.text for one in messages if one.author == PROGRAM]
            reported.update((binding.address.chat_id, found) for text in reports for found in _RESULT.findall(text))
    return reported


def _count_unfinished(tx: Transaction) -> int:
    return len([*tx.delegated_tasks.in_background(), *tx.completions.waiting()])

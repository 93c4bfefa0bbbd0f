"""Background work of many conversations while their gateway is killed: is every result reported once?"""

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
_PATIENCE = 90.0
_SLOW = (0.2, 3.0)
_FOUND = re.compile(r"\b(?:answer|process)-\d+\b")
_REPORTED = "Your background work reports"


@dataclass(frozen=True)
class Crowd:
    """How many conversations there are, and how often their gateway is killed meanwhile."""

    conversations: int
    kills: int

    @property
    def wanted(self) -> Counter[tuple[str, str]]:
        """The expected reports: the answer of a task and the end of a process in each chat, once."""
        numbers = range(self.conversations)
        return Counter((f"c{number}", f"{kind}-{number}") for number in numbers for kind in ("answer", "process"))


@dataclass(frozen=True)
class Outcome:
    """Reported results; ``missing`` and ``surplus`` compare them with the expected ones."""

    missing: int
    surplus: int
    unread: int
    left: int
    seconds: float


def run(quick: bool) -> list[Measurement]:
    """Let a hundred conversations begin a process and a task each, and kill their gateway three times."""
    crowd = Crowd(30 if quick else 100, 3)
    with TemporaryDirectory() as folder:
        outcome = asyncio.run(resume(crowd, Path(folder), seed=1))
    print(f"{crowd.conversations} conversations got all results within {outcome.seconds:.1f} s", flush=True)
    what = f"{crowd.conversations} conversations, {crowd.kills} kills"
    return [
        Measurement(f"{what}: not told", outcome.missing, "", 0),
        Measurement(f"{what}: told twice or in the wrong place", outcome.surplus, "", 0),
        Measurement(f"{what}: not read", outcome.unread, "", 0),
        Measurement(f"{what}: still kept as going on", outcome.left, "", 0),
    ]


async def resume(crowd: Crowd, home: Path, *, seed: int, start: StartGateway = start_gateway) -> Outcome:
    """Let it all happen, and return how it came out."""
    async with ModelServer() as server, LoopbackNetwork(_ABILITIES) as network:
        agent = _Agent(crowd.conversations, random.Random(seed))
        server.answering(agent.answer)
        environment = prepare_home(home, server.url, network.address, _ABILITIES)
        began = perf_counter()
        process = await start(environment)
        try:
            for number in range(crowd.conversations):
                network.say(f"c{number}", f"begin {number}", sender="owner")
            for kill in range(crowd.kills):
                await _moment(kill, crowd, server, network, agent)
                process.send_signal(signal.SIGKILL)
                await process.wait()
                process = await start(environment)
            with suppress(TimeoutError):  # what has not come by then is missing
                await network.until(lambda: not crowd.wanted - _read(network), seconds=_PATIENCE)
            seconds = perf_counter() - began
        finally:
            process.terminate()
            await process.wait()
        read = _read(network)
    store = open_sqlite_store(home / "profiles" / "default" / "talaria.db")
    try:
        told, left = await store.read(_told), await store.read(_left)
    finally:
        await store.close()
    missing, surplus = crowd.wanted - told, told - crowd.wanted
    return Outcome(missing.total(), surplus.total(), (crowd.wanted - read).total(), left, seconds)


async def _moment(kill: int, crowd: Crowd, server: ModelServer, network: LoopbackNetwork, agent: "_Agent") -> None:
    """Wait for a moment to kill: while work starts, while tasks run, while results are reported.

    A call that two kills cut off is not run a third time, and it is unknown then whether its task was begun. So the
    second kill waits for the results of all calls that the first one may have cut off.
    """
    match kill % 3:
        case 0:
            await server.arrived(len(server.received) + crowd.conversations)
        case 1:
            await agent.all_begun.wait()
        case _:
            unread = (crowd.wanted - _read(network)).total()
            await network.until(lambda: (crowd.wanted - _read(network)).total() <= unread * 2 // 3, seconds=_PATIENCE)


class _Agent:
    """The scripted model: begins both, works on tasks slowly, repeats what is reported.

    ``all_begun`` is set when so many ``conversations`` have the results of the calls that begin both.
    """

    def __init__(self, conversations: int, chance: random.Random) -> None:
        self.all_begun = asyncio.Event()
        self._conversations = conversations
        self._chance = chance
        self._begun: set[str] = set()

    async def answer(self, received: Received) -> Say:
        question = received.question
        if _REPORTED in question:
            return Say(" ".join(_FOUND.findall(question)))
        word, _, number = question.partition(" ")
        if word == "task":
            await asyncio.sleep(self._chance.uniform(*_SLOW))
            return Say(f"answer-{number}")
        last = received.json["messages"][-1]
        started = Ask("terminal", {"command": f"sleep 2 # process-{number}", "background": True})
        if last["role"] != "tool":
            tasks = [{"goal": f"task {number}"}]
            return Say(calls=[Ask("delegate_task", {"tasks": tasks, "background": True}), started])
        if last["content"].startswith("Interrupted"):  # nobody knows whether it was started
            return Say(calls=[Ask("process", {"action": "list"})])
        if last["content"] == "No background processes.":
            return Say(calls=[started])
        self._begun.add(number)
        if len(self._begun) == self._conversations:
            self.all_begun.set()
        return Say("Both go on.")


def _read(network: LoopbackNetwork) -> Counter[tuple[str, str]]:
    posts = [(post.address.chat_id, post.text) for post in network.posts]
    return Counter((chat, found) for chat, text in posts for found in _FOUND.findall(text))


def _told(tx: Transaction) -> Counter[tuple[str, str]]:
    """Return the results that each chat's conversation got."""
    told: Counter[tuple[str, str]] = Counter()
    for session in tx.sessions.find(SessionFilter(limit=None)):
        for binding in tx.bindings.of_session(session.id):
            messages = [stored.message for stored in tx.messages.load(session.id)]
            reports = [one.text for one in messages if one.author == PROGRAM]
            told.update((binding.address.chat_id, found) for text in reports for found in _FOUND.findall(text))
    return told


def _left(tx: Transaction) -> int:
    return len([*tx.delegated_tasks.in_background(), *tx.completions.waiting()])

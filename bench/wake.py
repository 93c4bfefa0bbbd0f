"""Delay until the end of a background process is reported in its chat, and the cost of watching many idle ones."""

import asyncio
import subprocess
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

from msgspec import structs

from bench.gateway_home import prepare_home, start_gateway
from bench.measure import Measurement, cpu_seconds
from talaria.contracts.background_processes import BackgroundProcess, ProcessRequest, list_processes
from talaria.contracts.platform import PlatformCapabilities
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.tool import Call, no_other_tool
from talaria.core.ids import SessionId, WorkerId, new_worker_id
from talaria.core.os_processes import is_running, kill_tree
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import Ask, Instant, ModelServer, Say
from talaria.testing.model_server.exchange import Received
from talaria.testing.model_server.wire import Answer
from talaria.tools.output import FullOutputs
from talaria.tools.process.supervisor import Supervisor
from talaria.tools.workspace import LocalWorkspace

NAME = "wake"
_ABILITIES = PlatformCapabilities(text_limit=4096, edits=True, idempotent=True)
_TOLD = "Your background work reports"
_INSTANT = Instant("It is done.")
_PERCENT = 100
_SESSIONS = 100
_SOON = 60


def run(quick: bool) -> list[Measurement]:
    """Measure both."""
    rounds, processes, seconds = (10, 200, 5) if quick else (60, 1_000, 30)
    return [*asyncio.run(_latency(rounds)), *asyncio.run(_idle(processes, seconds))]


async def _latency(rounds: int) -> list[Measurement]:
    with TemporaryDirectory() as folder:
        async with ModelServer() as server, LoopbackNetwork(_ABILITIES) as network:
            server.answering(_answer)
            environment = prepare_home(Path(folder), server.url, network.address, _ABILITIES, lease=15.0)
            gateway = await start_gateway(environment)
            try:
                await network.until(lambda: network.receivers == 1, seconds=_SOON)
                store = open_sqlite_store(_file(Path(folder)))
                times = [await _woken(network, store) * 1000 for _ in range(rounds)]
                await store.close()
            finally:
                gateway.terminate()
                await gateway.wait()
    label = f"from the end of a process to the first words of the reply, median of {rounds}"
    return [Measurement(label, median(times), "ms", 150)]


def _answer(received: Received) -> Answer:
    if _TOLD in received.question:
        return _INSTANT
    if received.json["messages"][-1]["role"] == "tool":
        return Say("begun")
    command = "rm -f gate; mkfifo gate; read _ <gate"
    return Say(calls=[Ask("terminal", {"command": command, "background": True})])


async def _woken(network: LoopbackNetwork, store: Store) -> float:
    """Have a process started in a chat, let it end, and return after how many seconds the chat hears of it."""
    count = len(network.posts)
    network.say("owner", "start it", sender="owner")
    await network.posted(count + 1, _SOON)
    process = (await store.read(list_processes))[-1]
    gate = Path(process.folder, "gate")
    while not await asyncio.to_thread(gate.is_fifo):  # noqa: ASYNC110 (it is there when it is)
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)  # the turn before is over, and all that comes behind it
    opened = await asyncio.to_thread(gate.open, "w")
    count = len(network.posts)
    began = perf_counter()
    opened.write("\n")
    opened.close()
    await network.posted(count + 1, _SOON)
    return perf_counter() - began


async def _idle(count: int, seconds: int) -> list[Measurement]:
    with TemporaryDirectory() as folder:
        async with ModelServer() as server, LoopbackNetwork(_ABILITIES) as network:
            environment = prepare_home(Path(folder), server.url, network.address, _ABILITIES, lease=15.0)
            bare = await _share(environment, network, seconds)
            started = await _start_many(Path(folder), count)
            try:
                watching = await _share(environment, network, seconds)
                assert all(is_running(process.pid) for process in started)
            finally:
                for process in started:
                    kill_tree(process.pid)
    label = f"watching {count:,} processes that do nothing, for a line and for their end"
    return [
        Measurement(label, watching - bare, "% of a core", 1.0),
        Measurement("the whole gateway, for comparison", watching, "% of a core", 1.5),
    ]


async def _share(environment: dict[str, str], network: LoopbackNetwork, seconds: int) -> float:
    """Return the percentage of a core that a gateway takes in which nothing happens."""
    gateway = await start_gateway(environment)
    try:
        await network.until(lambda: network.receivers == 1, seconds=_SOON)
        await asyncio.sleep(8)
        before = cpu_seconds(gateway.pid)
        await asyncio.to_thread(sleep, seconds)
        return (cpu_seconds(gateway.pid) - before) / seconds * _PERCENT
    finally:
        gateway.terminate()
        await gateway.wait()


async def _start_many(home: Path, count: int) -> list[BackgroundProcess]:
    """Start processes that the next gateway adopts, because their watcher is gone."""
    store = open_sqlite_store(_file(home))
    outputs = FullOutputs(home / "profiles" / "default" / "outputs")
    supervisor = Supervisor(store, _gone(), outputs.place, _NoReports())
    wanted = ProcessRequest(
        command="sleep",
        argv=("sleep", "3600"),
        folder="/",
        environment={"PATH": "/usr/bin:/bin"},
        notify=True,
        patterns=("never",),
    )
    sessions = await store.write(_sessions)
    call = _call(home)
    started = [
        await supervisor.start(wanted, structs.replace(call, session_id=sessions[number % _SESSIONS]))
        for number in range(count)
    ]
    await store.close()
    return started


def _sessions(tx: Transaction) -> list[SessionId]:
    return [tx.sessions.create(NewSession(source="loopback")).id for _ in range(_SESSIONS)]


def _call(home: Path) -> Call:
    return Call(
        id="1",
        session_id=SessionId(""),
        workspace=LocalWorkspace(home, {"PATH": "/usr/bin:/bin"}),
        person=_Nobody(),
        progress=lambda _: None,
        call_tool=no_other_tool,
    )


class _NoReports:
    """Implements `Reporter`."""

    topic = "wake"

    def report(self, tx: Transaction, process: BackgroundProcess, name: str, text: str) -> None:
        """Tell nothing."""

    def hear(self, tx: Transaction, process: BackgroundProcess, names: Sequence[str], call_id: str) -> None:
        """Hear nothing."""


class _Nobody:
    """Implements `Person`."""

    async def ask(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Answer nothing."""
        return None


def _gone() -> WorkerId:
    """Return a worker of this machine that is no more."""
    done = subprocess.Popen(["true"])
    done.wait()
    machine, _, name = new_worker_id().rpartition(":")
    return WorkerId(f"{machine.rpartition(':')[0]}:{done.pid}:{name}")


def _file(home: Path) -> Path:
    return home / "profiles" / "default" / "talaria.db"

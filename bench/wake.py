"""Delay until a background process's end is reported in its chat, and the cost of idle processes."""

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
_REPORT = "Your background work reports"
_INSTANT = Instant("It is done.")
_PERCENT = 100
_SESSIONS = 100
_TIMEOUT = 60


def run(quick: bool) -> list[Measurement]:
    """Measure the delay of reports, and the cost of watching idle processes."""
    rounds, processes, seconds = (10, 200, 5) if quick else (60, 1_000, 30)
    return [*asyncio.run(_measure_delay(rounds)), *asyncio.run(_measure_idle(processes, seconds))]


async def _measure_delay(rounds: int) -> list[Measurement]:
    with TemporaryDirectory() as folder:
        async with ModelServer() as server, LoopbackNetwork(_ABILITIES) as network:
            server.answering(_answer)
            environment = prepare_home(Path(folder), server.url, network.address, _ABILITIES, lease=15.0)
            gateway = await start_gateway(environment)
            try:
                await network.until(lambda: network.receivers == 1, seconds=_TIMEOUT)
                store = open_sqlite_store(_store_file(Path(folder)))
                times = [await _time_report(network, store) * 1000 for _ in range(rounds)]
                await store.close()
            finally:
                gateway.terminate()
                await gateway.wait()
    label = f"from the end of a process to the first text of the reply, median of {rounds}"
    return [Measurement(label, median(times), "ms", 150)]


def _answer(received: Received) -> Answer:
    if _REPORT in received.question:
        return _INSTANT
    if received.json["messages"][-1]["role"] == "tool":
        return Say("begun")
    command = "rm -f gate; mkfifo gate; read _ <gate"
    return Say(calls=[Ask("terminal", {"command": command, "background": True})])


async def _time_report(network: LoopbackNetwork, store: Store) -> float:
    """Start a process in a chat, end it, and return the seconds until the chat shows the report."""
    count = len(network.posts)
    network.say("owner", "start it", sender="owner")
    await network.posted(count + 1, _TIMEOUT)
    process = (await store.read(list_processes))[-1]
    gate = Path(process.folder, "gate")
    while not await asyncio.to_thread(gate.is_fifo):  # noqa: ASYNC110 (nothing signals that the pipe exists)
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.3)  # until the previous turn and its follow-ups are over
    opened = await asyncio.to_thread(gate.open, "w")
    count = len(network.posts)
    began = perf_counter()
    opened.write("\n")
    opened.close()
    await network.posted(count + 1, _TIMEOUT)
    return perf_counter() - began


async def _measure_idle(count: int, seconds: int) -> list[Measurement]:
    with TemporaryDirectory() as folder:
        async with ModelServer() as server, LoopbackNetwork(_ABILITIES) as network:
            environment = prepare_home(Path(folder), server.url, network.address, _ABILITIES, lease=15.0)
            bare = await _share(environment, network, seconds)
            started = await _start_processes(Path(folder), count)
            try:
                watching = await _share(environment, network, seconds)
                assert all(is_running(process.pid) for process in started)
            finally:
                for process in started:
                    kill_tree(process.pid)
    label = f"watching {count:,} idle processes for a pattern and for their end"
    return [
        Measurement(label, watching - bare, "% of a core", 1.0),
        Measurement("the whole gateway, for comparison", watching, "% of a core", 1.5),
    ]


async def _share(environment: dict[str, str], network: LoopbackNetwork, seconds: int) -> float:
    """Return the percentage of a core that an idle gateway uses."""
    gateway = await start_gateway(environment)
    try:
        await network.until(lambda: network.receivers == 1, seconds=_TIMEOUT)
        await asyncio.sleep(8)
        before = cpu_seconds(gateway.pid)
        await asyncio.to_thread(sleep, seconds)
        return (cpu_seconds(gateway.pid) - before) / seconds * _PERCENT
    finally:
        gateway.terminate()
        await gateway.wait()


async def _start_processes(home: Path, count: int) -> list[BackgroundProcess]:
    """Start processes of a worker that has ended, so that the next gateway adopts them."""
    store = open_sqlite_store(_store_file(home))
    outputs = FullOutputs(home / "profiles" / "default" / "outputs")
    supervisor = Supervisor(store, _ended_worker(), outputs.find_folder, _NoReports())
    request = ProcessRequest(
        command="sleep",
        argv=("sleep", "3600"),
        folder="/",
        environment={"PATH": "/usr/bin:/bin"},
        notify=True,
        patterns=("never",),
    )
    sessions = await store.write(_create_sessions)
    call = _make_call(home)
    started = [
        await supervisor.start(request, structs.replace(call, session_id=sessions[number % _SESSIONS]))
        for number in range(count)
    ]
    await store.close()
    return started


def _create_sessions(tx: Transaction) -> list[SessionId]:
    return [tx.sessions.create(NewSession(source="loopback")).id for _ in range(_SESSIONS)]


def _make_call(home: Path) -> Call:
    return Call(
        id="1",
        session_id=SessionId(""),
        workspace=LocalWorkspace(home, {"PATH": "/usr/bin:/bin"}),
        person=_SilentPerson(),
        progress=lambda _: None,
        call_tool=no_other_tool,
    )


class _NoReports:
    """Reporter that discards everything."""

    topic = "wake"

    def report(self, tx: Transaction, process: BackgroundProcess, name: str, text: str) -> None:
        """Discard a report."""

    def record_pending_answers(
        self, tx: Transaction, process: BackgroundProcess, names: Sequence[str], call_id: str
    ) -> None:
        """Discard the record of a tool call that returns reports."""


class _SilentPerson:
    """Person who answers no question."""

    async def ask(self, question: str, choices: tuple[str, ...] = ()) -> str | None:
        """Return no answer."""
        return None


def _ended_worker() -> WorkerId:
    """Return the id of a worker of this machine whose process has ended."""
    done = subprocess.Popen(["true"])
    done.wait()
    machine, _, name = new_worker_id().rpartition(":")
    return WorkerId(f"{machine.rpartition(':')[0]}:{done.pid}:{name}")


def _store_file(home: Path) -> Path:
    return home / "profiles" / "default" / "talaria.db"

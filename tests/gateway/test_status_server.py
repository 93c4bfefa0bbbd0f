"""What a gateway tells programs over HTTP, and what it leaves behind about its end."""

import asyncio
import json
import signal
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.app import warm_program
from tests.app.program import Program
from tests.app.warm_program import WarmProcess

from talaria.contracts.store import Transaction
from talaria.core.addresses import Address
from talaria.core.ids import SessionId, new_worker_id
from talaria.gateway.chats.chat import Chat
from talaria.gateway.chats.registry import ChatRegistry
from talaria.gateway.status_server import StatusServer
from talaria.gateway.supervisor import GatewaySupervisor
from talaria.runtime.agent_cache import AgentSpec
from talaria.settings.model import LiveSettings, Settings
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.loopback_platform import LoopbackNetwork
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import LIMIT, until


class Place:
    """A profile with a model and a chat network."""

    def __init__(self, home: Path, server: ModelServer, network: LoopbackNetwork) -> None:
        self.program = Program(home)
        self.network = network
        self.server = server
        self.folder = home / "profiles" / "default"
        self.folder.mkdir(parents=True)
        self.settings(network.address)

    def settings(self, address: str, gateway: str = "") -> None:
        (self.folder / "config.toml").write_text(
            f'[model]\nprovider = "mine"\nname = "scripted"\n[providers.mine]\nbase_url = "{self.server.url}/v1"\n'
            f'[access]\nowners = ["loopback:ann"]\n[gateway]\nlease_seconds = 1.0\ndrain_seconds = 1.0\n{gateway}\n'
            f'[platforms.loopback.options]\naddress = "{address}"\n'
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[WarmProcess]:
        process = await warm_program.start(
            *("gateway", "run"),
            env=self.program.environment(),
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
                async with asyncio.timeout(LIMIT):
                    await process.wait()

    async def status(self) -> dict[str, Any]:
        """Return what a gateway says of itself, once there is one."""
        async with asyncio.timeout(LIMIT):
            while True:
                told = await asyncio.to_thread(self.program.run, "gateway", "status", "--json")
                if told.code == 0:
                    one: dict[str, Any] = json.loads(told.out)[0]
                    return one


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with ModelServer() as server, LoopbackNetwork() as network:
        yield Place(tmp_path, server, network)


async def exchange(address: str, request: bytes) -> tuple[int, str, str]:
    """Return the status, head and body of what comes back for these bytes."""
    host, _, port = address.removeprefix("http://").partition(":")
    async with asyncio.timeout(LIMIT):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(request)
        answer = (await reader.read()).decode()
        writer.close()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), head, body


async def get(address: str, path: str) -> tuple[int, str]:
    status, _, body = await exchange(address, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return status, body


async def get_when(address: str, path: str, suits: Callable[[int, str], bool]) -> str:
    """Return the body of the first answer that suits."""

    async def look() -> tuple[str, ...]:
        status, body = await get(address, path)
        return (body,) if suits(status, body) else ()

    return (await until(look))[0]


SETTLED = {"delivered_total": 1, "outbox_waiting": 0}  # the second is counted a moment after the first


async def test_health_readiness_and_metrics_are_served(place: Place) -> None:
    async with place.running():
        address = (await place.status())["address"]
        assert (await get(address, "/health"))[0] == 200
        ready = await get_when(address, "/ready", lambda status, _: status == 200)
        assert json.loads(ready) == {"ready": True, "reasons": []}
        place.network.say("ann", "hello")
        settled = [f'talaria_{name}{{network="loopback"}} {count}\n' for name, count in SETTLED.items()]
        figures = await get_when(address, "/metrics", lambda _, body: all(line in body for line in settled))
    for line in ('network_up{network="loopback"} 1', 'received_total{network="loopback"} 1', "sessions_open 1"):
        assert f"talaria_{line}\n" in figures
    for line in ('failed_total{network="loopback"} 0', 'repeated_total{network="loopback"} 0', "store_up 1"):
        assert f"talaria_{line}\n" in figures
    values = dict(line.rsplit(" ", 1) for line in figures.splitlines() if not line.startswith("#"))
    assert float(values["process_resident_memory_bytes"]) > 10_000_000
    assert 0 <= float(values["talaria_event_loop_lag_seconds"]) <= float(values["talaria_event_loop_lag_max_seconds"])
    assert all(f"# TYPE {name.partition('{')[0]} " in figures for name in values)


async def test_a_gateway_without_a_connection_is_alive_but_not_ready(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    place.settings(f"127.0.0.1:{port}")
    async with place.running():
        address = (await place.status())["address"]
        assert (await get(address, "/health"))[0] == 200
        body = await get_when(address, "/ready", lambda status, body: status == 503 and "waiting" in body)
        assert json.loads(body)["ready"] is False
        assert json.loads(body)["reasons"][0].startswith("loopback: waiting.")
        assert 'talaria_network_up{network="loopback"} 0\n' in (await get(address, "/metrics"))[1]


async def test_what_is_no_question_of_ours_gets_an_answer_too(place: Place) -> None:
    async with place.running():
        address = (await place.status())["address"]
        host = b"Host: 127.0.0.1\r\n"
        assert (await get(address, "/elsewhere"))[0] == 404
        assert (await get(address, "/health?x=1"))[0] == 200
        status, head, _ = await exchange(address, b"POST /health HTTP/1.1\r\n" + host + b"\r\n")
        assert (status, "allow: GET" in head) == (405, True)
        assert (await exchange(address, b"GET /health HTTP/1.1\r\nHost: page.example\r\n\r\n"))[0] == 403
        assert (await exchange(address, b"GET /health HTTP/1.1\r\nHost: page.example:80\r\n\r\n"))[0] == 403
        assert (await exchange(address, b"\x16\x03\x01 hello\r\n\r\n"))[0] == 400
        assert (await exchange(address, b"GET /" + b"x" * 10_000))[0] == 431
        assert (await exchange(address, b"GET /health HTTP/1.0\r\n\r\n"))[0] == 200


async def test_more_visitors_than_fit_are_sent_away(place: Place) -> None:
    async with place.running(), asyncio.timeout(LIMIT):
        address = (await place.status())["address"]
        port = int(address.rpartition(":")[2])
        crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        answers = [await reader.read() for reader, _ in crowd]
        assert [b" 503 " in answer for answer in answers] == [False] * 32 + [True] * 8
        assert answers[:32] == [b""] * 32
        assert (await get(address, "/health"))[0] == 200
        for _, writer in crowd:
            writer.close()


async def test_a_port_that_is_taken_is_reported_and_another_is_used(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        place.settings(place.network.address, f"port = {port}")
        async with place.running():
            status = await place.status()
            assert (await get(status["address"], "/health"))[0] == 200
            assert not status["address"].endswith(f":{port}")
            told = await asyncio.to_thread(place.program.run, "gateway", "status")
            assert f"Port {port} (setting `gateway.port`) isn't available" in told.out
            assert f"{status['address']}/health" in told.out
            place.settings(place.network.address, f"port = {port}\nopen_sessions = 7")
            async with asyncio.timeout(LIMIT):
                while "gateway.open_sessions" not in told.out:
                    told = await asyncio.to_thread(place.program.run, "gateway", "status")
            assert f"Port {port} (setting `gateway.port`) isn't available" in told.out


async def test_a_port_of_ones_own_is_used(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    place.settings(place.network.address, f"port = {port}")
    async with place.running():
        assert (await place.status())["address"] == f"http://127.0.0.1:{port}"


async def test_a_store_that_does_not_answer_is_a_reason_not_to_be_ready(tmp_path: Path) -> None:
    store = open_sqlite_store(tmp_path / "talaria.db", readers=1)
    entered, let_go = threading.Event(), threading.Event()

    def hold_up(_tx: Transaction) -> None:
        entered.set()
        let_go.wait(20)

    def make(key: str, address: Address) -> Chat:
        raise AssertionError(key, address)

    async def agent_spec(address: Address, session_id: SessionId) -> AgentSpec:
        raise AssertionError(address, session_id)

    second = timedelta(seconds=1)
    async with AsyncExitStack() as stack:
        jobs = await stack.enter_async_context(asyncio.TaskGroup())
        rooms = ChatRegistry(store, new_worker_id(), make, agent_spec, jobs, LiveSettings(Settings()))
        gateway = GatewaySupervisor(store, "1", [], rooms, lease=second, patience=second)
        await stack.enter_async_context(StatusServer(gateway, store, jobs, str).served(0))
        assert (await get(gateway.address, "/ready"))[0] == 200
        jobs.create_task(store.read(hold_up))
        await asyncio.to_thread(entered.wait, 10)
        status, body = await get(gateway.address, "/ready")
        assert (status, json.loads(body)["reasons"]) == (503, ["The store didn't answer within 1 s."])
        assert (await get(gateway.address, "/health"))[0] == 200
        figures = (await get(gateway.address, "/metrics"))[1]
        let_go.set()
        assert "talaria_store_up 0\n" in figures
        assert "talaria_outbox_waiting" not in figures
        await get_when(gateway.address, "/ready", lambda status, _: status == 200)
    await store.close()


async def test_an_end_by_a_signal_leaves_its_reason(place: Place) -> None:
    place.server.script(Say("slow " * 200, pause=0.1))
    async with place.running() as process:
        place.network.say("ann", "take your time")
        async with asyncio.timeout(LIMIT):
            await place.server.arrived(1)
        process.terminate()
        async with asyncio.timeout(LIMIT):
            assert await process.wait() == 0
    ending = json.loads((place.folder / "logs" / "last-end.json").read_text())
    assert ending["why"].startswith("SIGTERM")
    assert (ending["pid"], ending["turns"], len(ending["unfinished"])) == (process.pid, 1, 1)
    assert (len(ending["load"]), ending["memory"] > 0, bool(ending["started_by"])) == (3, True, True)
    told = await asyncio.to_thread(place.program.run, "gateway", "status")
    assert "The gateway last ended just now: SIGTERM" in told.out
    assert "1 turn interrupted" in told.out
    assert list((place.folder / "logs").glob("*.running")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
async def test_other_signals_end_it_in_good_order_too(place: Place, number: signal.Signals) -> None:
    async with place.running() as process:
        await place.status()
        process.send_signal(number)
        async with asyncio.timeout(LIMIT):
            assert await process.wait() == 0
    told = (await asyncio.to_thread(place.program.run, "gateway", "status")).out
    assert f"The gateway last ended just now: {number.name}" in told
    started = await asyncio.to_thread(place.program.run, "gateway", "start")
    assert (started.code, f"ended just now: {number.name}" in started.err) == (0, True)
    assert (await asyncio.to_thread(place.program.run, "gateway", "stop")).code == 0


async def test_a_killed_gateway_is_missed_at_the_next_start(place: Place) -> None:
    async with place.running() as process:
        assert "unexpectedly" not in str(await place.status())
        running = await asyncio.to_thread(place.program.run, "gateway", "status")
        assert "ended" not in running.out
        process.send_signal(signal.SIGKILL)
        await process.wait()
    words = "ended unexpectedly: it was killed, or the machine went down"
    assert words in (await asyncio.to_thread(place.program.run, "gateway", "status")).out
    async with place.running() as process:
        await place.status()
        assert len(list((place.folder / "logs").glob("*.running"))) == 1
        assert words in (await asyncio.to_thread(place.program.run, "gateway", "status")).out
        process.terminate()
        assert process.stderr is not None
        assert words in (await process.stderr.read()).decode()
        await process.wait()
    assert words not in (await asyncio.to_thread(place.program.run, "gateway", "status")).out


async def test_a_refused_gateway_writes_no_record_of_an_end(place: Place) -> None:
    async with place.running():
        await place.status()
        assert (await asyncio.to_thread(place.program.run, "gateway", "run")).code == 1
        assert not (place.folder / "logs" / "last-end.json").exists()

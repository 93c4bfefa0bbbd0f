"""Status server of the gateway: health, readiness and metrics, and the record of how it last ended."""

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
from talaria.testing.system_servers import free_port
from talaria.testing.wait import LIMIT, until


class GatewayProfile:
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
        """Return the status that the gateway reports, once it is running."""
        async with asyncio.timeout(LIMIT):
            while True:
                result = await asyncio.to_thread(self.program.run, "gateway", "status", "--json")
                if result.code == 0:
                    one: dict[str, Any] = json.loads(result.out)[0]
                    return one


@pytest.fixture
async def profile(tmp_path: Path) -> AsyncIterator[GatewayProfile]:
    async with ModelServer() as server, LoopbackNetwork() as network:
        yield GatewayProfile(tmp_path, server, network)


async def exchange(address: str, request: bytes) -> tuple[int, str, str]:
    """Return the status, head and body of the response to these bytes."""
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


async def get_when(address: str, path: str, matches: Callable[[int, str], bool]) -> str:
    """Return the body of the first matching response."""

    async def look() -> tuple[str, ...]:
        status, body = await get(address, path)
        return (body,) if matches(status, body) else ()

    return (await until(look))[0]


SETTLED = {"delivered_total": 1, "outbox_waiting": 0}  # the second is counted a moment after the first


async def test_health_readiness_and_metrics_are_served(profile: GatewayProfile) -> None:
    async with profile.running():
        address = (await profile.status())["address"]
        assert (await get(address, "/health"))[0] == 200
        ready = await get_when(address, "/ready", lambda status, _: status == 200)
        assert json.loads(ready) == {"ready": True, "reasons": []}
        profile.network.say("ann", "hello")
        settled = [f'talaria_{name}{{network="loopback"}} {count}\n' for name, count in SETTLED.items()]
        metrics = await get_when(address, "/metrics", lambda _, body: all(line in body for line in settled))
    for line in ('network_up{network="loopback"} 1', 'received_total{network="loopback"} 1', "sessions_open 1"):
        assert f"talaria_{line}\n" in metrics
    for line in ('failed_total{network="loopback"} 0', 'repeated_total{network="loopback"} 0', "store_up 1"):
        assert f"talaria_{line}\n" in metrics
    values = dict(line.rsplit(" ", 1) for line in metrics.splitlines() if not line.startswith("#"))
    assert float(values["process_resident_memory_bytes"]) > 10_000_000
    assert 0 <= float(values["talaria_event_loop_lag_seconds"]) <= float(values["talaria_event_loop_lag_max_seconds"])
    assert all(f"# TYPE {name.partition('{')[0]} " in metrics for name in values)


async def test_a_gateway_without_a_connection_is_alive_but_not_ready(profile: GatewayProfile) -> None:
    profile.settings(f"127.0.0.1:{free_port()}")
    async with profile.running():
        address = (await profile.status())["address"]
        assert (await get(address, "/health"))[0] == 200
        body = await get_when(address, "/ready", lambda status, body: status == 503 and "waiting" in body)
        assert json.loads(body)["ready"] is False
        assert json.loads(body)["reasons"][0].startswith("loopback: waiting.")
        assert 'talaria_network_up{network="loopback"} 0\n' in (await get(address, "/metrics"))[1]


async def test_invalid_requests_get_error_responses(profile: GatewayProfile) -> None:
    async with profile.running():
        address = (await profile.status())["address"]
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


async def test_connections_over_the_limit_are_refused(profile: GatewayProfile) -> None:
    async with profile.running(), asyncio.timeout(LIMIT):
        address = (await profile.status())["address"]
        port = int(address.rpartition(":")[2])
        crowd = [await asyncio.open_connection("127.0.0.1", port) for _ in range(40)]
        answers = [await reader.read() for reader, _ in crowd]
        assert [b" 503 " in answer for answer in answers] == [False] * 32 + [True] * 8
        assert answers[:32] == [b""] * 32
        assert (await get(address, "/health"))[0] == 200
        for _, writer in crowd:
            writer.close()


async def test_port_in_use_is_reported_and_replaced_by_another(profile: GatewayProfile) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        profile.settings(profile.network.address, f"port = {port}")
        async with profile.running():
            status = await profile.status()
            assert (await get(status["address"], "/health"))[0] == 200
            assert not status["address"].endswith(f":{port}")
            status_text = await asyncio.to_thread(profile.program.run, "gateway", "status")
            assert f"Port {port} (setting `gateway.port`) isn't available" in status_text.out
            assert f"{status['address']}/health" in status_text.out
            profile.settings(profile.network.address, f"port = {port}\nopen_sessions = 7")
            async with asyncio.timeout(LIMIT):
                while "gateway.open_sessions" not in status_text.out:
                    status_text = await asyncio.to_thread(profile.program.run, "gateway", "status")
            assert f"Port {port} (setting `gateway.port`) isn't available" in status_text.out


async def test_configured_port_is_used(profile: GatewayProfile) -> None:
    port = free_port()
    profile.settings(profile.network.address, f"port = {port}")
    async with profile.running():
        assert (await profile.status())["address"] == f"http://127.0.0.1:{port}"


async def test_gateway_is_not_ready_while_the_store_does_not_answer(tmp_path: Path) -> None:
    store = open_sqlite_store(tmp_path / "talaria.db", readers=1)
    entered, released = threading.Event(), threading.Event()

    def block_reader(_tx: Transaction) -> None:
        entered.set()
        released.wait(20)

    def make(key: str, address: Address) -> Chat:
        raise AssertionError(key, address)

    async def agent_spec(address: Address, session_id: SessionId) -> AgentSpec:
        raise AssertionError(address, session_id)

    second = timedelta(seconds=1)
    async with AsyncExitStack() as stack:
        jobs = await stack.enter_async_context(asyncio.TaskGroup())
        chats = ChatRegistry(store, new_worker_id(), make, agent_spec, jobs, LiveSettings(Settings()))
        gateway = GatewaySupervisor(store, "1", [], chats, lease=second, patience=second)
        await stack.enter_async_context(StatusServer(gateway, store, jobs, str).serve(0))
        assert (await get(gateway.address, "/ready"))[0] == 200
        jobs.create_task(store.read(block_reader))
        await asyncio.to_thread(entered.wait, 10)
        status, body = await get(gateway.address, "/ready")
        assert (status, json.loads(body)["reasons"]) == (503, ["The store didn't answer within 1 s."])
        assert (await get(gateway.address, "/health"))[0] == 200
        metrics = (await get(gateway.address, "/metrics"))[1]
        released.set()
        assert "talaria_store_up 0\n" in metrics
        assert "talaria_outbox_waiting" not in metrics
        await get_when(gateway.address, "/ready", lambda status, _: status == 200)
    await store.close()


async def test_gateway_ended_by_a_signal_records_the_reason(profile: GatewayProfile) -> None:
    profile.server.script(Say("slow " * 200, pause=0.1))
    async with profile.running() as process:
        profile.network.say("ann", "take your time")
        async with asyncio.timeout(LIMIT):
            await profile.server.arrived(1)
        process.terminate()
        async with asyncio.timeout(LIMIT):
            assert await process.wait() == 0
    ending = json.loads((profile.folder / "logs" / "last-end.json").read_text())
    assert ending["why"].startswith("SIGTERM")
    assert (ending["pid"], ending["turns"], len(ending["unfinished"])) == (process.pid, 1, 1)
    assert (len(ending["load"]), ending["memory"] > 0, bool(ending["started_by"])) == (3, True, True)
    status_text = await asyncio.to_thread(profile.program.run, "gateway", "status")
    assert "The gateway last ended just now: SIGTERM" in status_text.out
    assert "1 turn interrupted" in status_text.out
    assert list((profile.folder / "logs").glob("*.running")) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
async def test_gateway_shuts_down_cleanly_on_other_signals(profile: GatewayProfile, number: signal.Signals) -> None:
    async with profile.running() as process:
        await profile.status()
        process.send_signal(number)
        async with asyncio.timeout(LIMIT):
            assert await process.wait() == 0
    status_text = (await asyncio.to_thread(profile.program.run, "gateway", "status")).out
    assert f"The gateway last ended just now: {number.name}" in status_text
    started = await asyncio.to_thread(profile.program.run, "gateway", "start")
    assert (started.code, f"ended just now: {number.name}" in started.err) == (0, True)
    assert (await asyncio.to_thread(profile.program.run, "gateway", "stop")).code == 0


async def test_killed_gateway_is_reported_at_the_next_start(profile: GatewayProfile) -> None:
    async with profile.running() as process:
        assert "unexpectedly" not in str(await profile.status())
        running = await asyncio.to_thread(profile.program.run, "gateway", "status")
        assert "ended" not in running.out
        process.send_signal(signal.SIGKILL)
        await process.wait()
    notice = "ended unexpectedly: it was killed, or the machine went down"
    assert notice in (await asyncio.to_thread(profile.program.run, "gateway", "status")).out
    async with profile.running() as process:
        await profile.status()
        assert len(list((profile.folder / "logs").glob("*.running"))) == 1
        assert notice in (await asyncio.to_thread(profile.program.run, "gateway", "status")).out
        process.terminate()
        assert process.stderr is not None
        assert notice in (await process.stderr.read()).decode()
        await process.wait()
    assert notice not in (await asyncio.to_thread(profile.program.run, "gateway", "status")).out


async def test_a_refused_gateway_writes_no_record_of_an_end(profile: GatewayProfile) -> None:
    async with profile.running():
        await profile.status()
        assert (await asyncio.to_thread(profile.program.run, "gateway", "run")).code == 1
        assert not (profile.folder / "logs" / "last-end.json").exists()

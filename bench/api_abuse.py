"""API server under abusive clients: half-open connections, endless headers, few file descriptors."""

import asyncio
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from statistics import median
from time import perf_counter

import aiohttp

from bench.agent_server import run_model_server
from bench.api_servers import Server, percentile_ms, run_talaria
from bench.measure import Measurement

NAME = "api-abuse"

_HALF_OPEN = 300
_LARGE = 300_000_000  # bytes
_CHUNK = b"y" * 262_144
_HEAD = b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: "
_REQUESTS, _ROUNDS = 800, 8
_FEW_FILES = 256
_FLOOD = 400
_MAX_SLOWDOWN = 2.0  # times
_MAX_GROWTH = 8.0  # MB

_FLOOD_SCRIPT = """
import socket, threading

def send():
    while True:
        try:
            with socket.create_connection(("127.0.0.1", {port})) as connection:
                connection.sendall({head!r})
                while True:
                    connection.sendall(b"y" * 65536)
        except OSError:
            pass

for _ in range(4):
    threading.Thread(target=send).start()
"""


def run(quick: bool) -> list[Measurement]:
    """Measure response times, memory and the end of connections under each kind of abuse."""
    return asyncio.run(_run(quick))


async def _run(quick: bool) -> list[Measurement]:
    requests = _REQUESTS // 4 if quick else _REQUESTS
    async with run_model_server() as model:
        async with run_talaria(model) as server:
            alone, with_half_open = await _measure_half_open(server, requests)
            before = server.memory()
            sent = await _send_endless_header(server, _LARGE)
            growth = server.memory() - before
            async with _run_flood(server):
                with_flood = await _measure_health(server, requests)
            close_seconds = await _measure_close(server, _HALF_OPEN)
        with_few_files = await _measure_few_files(model, requests)
    return [
        Measurement(f"/health p50 with {_HALF_OPEN} half-open connections", with_half_open, "ms", _MAX_SLOWDOWN, alone),
        Measurement("/health p50 with 4 clients that send endless headers", with_flood, "ms", _MAX_SLOWDOWN * 5, alone),
        Measurement(
            f"bytes accepted of a header of {_LARGE // 1_000_000} MB", sent / 1_000_000, "MB", _LARGE / 10_000_000
        ),
        Measurement("memory growth during that header", growth, "MB", _MAX_GROWTH),
        Measurement(f"time until {_HALF_OPEN} half-open connections are closed", close_seconds, "s", 20),
        Measurement(
            f"/health p50 with {_FLOOD} half-open, {_FEW_FILES} file descriptors",
            with_few_files,
            "ms",
            _MAX_SLOWDOWN * 5,
            alone,
        ),
    ]


async def _measure_half_open(server: Server, requests: int) -> tuple[float, float]:
    """Return the median times without and with half-open connections, measured alternately."""
    alone, disturbed = [], []
    for _ in range(_ROUNDS):
        alone.append(await _measure_health(server, requests // _ROUNDS))
        async with _open_half_requests(server, _HALF_OPEN):
            disturbed.append(await _measure_health(server, requests // _ROUNDS))
    return median(alone), median(disturbed)


async def _measure_health(server: Server, count: int) -> float:
    """Return the median time of requests to `/health`, each over a new connection."""
    times = []
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as http:
        for _ in range(count):
            began = perf_counter()
            async with http.get(f"{server.url}/health", raise_for_status=True) as answer:
                await answer.read()
            times.append(perf_counter() - began)
    return percentile_ms(times, 50)


@asynccontextmanager
async def _open_half_requests(server: Server, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Keep connections open after sending half of a request's headers."""
    port = int(server.url.rpartition(":")[2])
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    for _, writer in opened:
        writer.write(_HEAD)
    try:
        yield [reader for reader, _ in opened]
    finally:
        for _, writer in opened:
            writer.close()


async def _measure_close(server: Server, count: int) -> float:
    """Return the seconds until the server has closed all half-open connections."""
    began = perf_counter()
    async with _open_half_requests(server, count) as readers:
        for reader in readers:
            with suppress(ConnectionError):
                await reader.read()
    return perf_counter() - began


async def _send_endless_header(server: Server, limit: int) -> int:
    """Send one endless header, and return how many bytes the server accepted."""
    sent = 0
    _, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    with suppress(ConnectionError):
        writer.write(_HEAD)
        while sent < limit:
            writer.write(_CHUNK)
            await writer.drain()
            sent += len(_CHUNK)
    writer.close()
    return sent


@asynccontextmanager
async def _run_flood(server: Server) -> AsyncIterator[None]:
    """Send endless headers from another process over four connections, which reconnect when refused."""
    script = _FLOOD_SCRIPT.format(port=server.url.rpartition(":")[2], head=_HEAD)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    try:
        yield
    finally:
        process.kill()
        await process.wait()


async def _measure_few_files(model: str, requests: int) -> float:
    """Measure a server with more connections than it may have file descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FEW_FILES, hard))
    async with run_talaria(model) as server:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        async with _open_half_requests(server, _FLOOD):
            return await _measure_health(server, requests)

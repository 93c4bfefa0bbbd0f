"""The API under clients that misbehave: half-open connections, endless heads, few file descriptors."""

import asyncio
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from statistics import median
from time import perf_counter

import aiohttp

from bench.agent_server import served
from bench.api_servers import Server, talaria, within
from bench.measure import Measurement

NAME = "api-abuse"

_HALF_OPEN = 300
_LARGE = 300_000_000  # bytes
_PIECE = b"y" * 262_144
_HEAD = b"GET /health HTTP/1.1\r\nhost: localhost\r\nx: "
_LOOKS, _ROUNDS = 800, 8
_FEW_FILES = 256
_FLOOD = 400
_SLOWER = 2.0  # times
_GROWN = 8.0  # MB

_FLOODING = """
import socket, threading

def send():
    while True:
        try:
            with socket.create_connection(("127.0.0.1", {port})) as one:
                one.sendall({head!r})
                while True:
                    one.sendall(b"y" * 65536)
        except OSError:
            pass

for _ in range(4):
    threading.Thread(target=send).start()
"""


def run(quick: bool) -> list[Measurement]:
    """Measure all of it."""
    return asyncio.run(_run(quick))


async def _run(quick: bool) -> list[Measurement]:
    looks = _LOOKS // 4 if quick else _LOOKS
    async with served() as model:
        async with talaria(model) as server:
            alone, beside_half_open = await _alternating(server, looks)
            before = server.memory()
            sent = await _send_head(server, _LARGE)
            grown = server.memory() - before
            async with _run_flood(server):
                beside_endless = await _health(server, looks)
            closed = await _closed(server, _HALF_OPEN)
        few = await _with_few_files(model, looks)
    return [
        Measurement(f"/health p50 with {_HALF_OPEN} half-open connections", beside_half_open, "ms", _SLOWER, alone),
        Measurement("/health p50 with 4 endless heads, sent repeatedly", beside_endless, "ms", _SLOWER * 5, alone),
        Measurement(
            f"bytes taken of a header of {_LARGE // 1_000_000} MB", sent / 1_000_000, "MB", _LARGE / 10_000_000
        ),
        Measurement("memory for it", grown, "MB", _GROWN),
        Measurement(f"until {_HALF_OPEN} half-open connections are closed", closed, "s", 20),
        Measurement(f"/health p50 with {_FLOOD} half-open, {_FEW_FILES} files", few, "ms", _SLOWER * 5, alone),
    ]


async def _alternating(server: Server, looks: int) -> tuple[float, float]:
    """Return the median times without and with half-open connections, in turns, as other load comes and goes."""
    alone, beside = [], []
    for _ in range(_ROUNDS):
        alone.append(await _health(server, looks // _ROUNDS))
        async with _half_open(server, _HALF_OPEN):
            beside.append(await _health(server, looks // _ROUNDS))
    return median(alone), median(beside)


async def _health(server: Server, count: int) -> float:
    """Return the median time of a look, each over a new connection."""
    times = []
    connector = aiohttp.TCPConnector(force_close=True)
    async with aiohttp.ClientSession(connector=connector) as http:
        for _ in range(count):
            began = perf_counter()
            async with http.get(f"{server.url}/health", raise_for_status=True) as answer:
                await answer.read()
            times.append(perf_counter() - began)
    return within(times, 50)


@asynccontextmanager
async def _half_open(server: Server, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Hold connections open on which half of a head was sent."""
    port = int(server.url.rpartition(":")[2])
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(count)]
    for _, writer in opened:
        writer.write(_HEAD)
    try:
        yield [reader for reader, _ in opened]
    finally:
        for _, writer in opened:
            writer.close()


async def _closed(server: Server, count: int) -> float:
    """Return after how long the last of many half-open connections is closed."""
    began = perf_counter()
    async with _half_open(server, count) as readers:
        for reader in readers:
            with suppress(ConnectionError):
                await reader.read()
    return perf_counter() - began


async def _send_head(server: Server, most: int) -> int:
    """Send one header that does not end, and return how many bytes could be sent."""
    sent = 0
    _, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    with suppress(ConnectionError):
        writer.write(_HEAD)
        while sent < most:
            writer.write(_PIECE)
            await writer.drain()
            sent += len(_PIECE)
    writer.close()
    return sent


@asynccontextmanager
async def _run_flood(server: Server) -> AsyncIterator[None]:
    """Let another process send endless heads over four connections, each again as soon as it is refused."""
    script = _FLOODING.format(port=server.url.rpartition(":")[2], head=_HEAD)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
    try:
        yield
    finally:
        process.kill()
        await process.wait()


async def _with_few_files(model: str, looks: int) -> float:
    """Look while a server that may open few files has more connections than that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_FEW_FILES, hard))
    async with talaria(model) as server:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        async with _half_open(server, _FLOOD):
            return await _health(server, looks)

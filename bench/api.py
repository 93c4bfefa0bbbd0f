"""The API server: requests a second, latency at 1, 8 and 64 in flight, memory, and lists while turns run.

The model answers at once and has a process of its own, as have the clients. Beside it a bare ASGI application streams
the same bytes. Every request is a new conversation, which is the most that a client can ask for. The goals are ratios
to Hermes, measured on the same kind of machine: 50 times its 4.7 requests a second at 64 in flight, a twentieth of its
311 ms at 1, half of its 244 MB after 1,000 conversations.
"""

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter

import aiohttp
import msgspec

from bench.agent_server import served
from bench.api_load import Load
from bench.measure import Figure, byte_code_environment, installed

NAME = "api"
CHAT = "/v1/chat/completions"

_THROUGHPUT, _LATENCY, _FIRST_BYTE, _MEMORY, _LIST = 235, 15.5, 3.0, 122, 50.0
_ANY = 5000.0
_IN_FLIGHT = (1, 8, 64)
_SESSIONS = 1000
_SLOW_TURNS = 64
_LOOKS = 100


def run(quick: bool) -> list[Figure]:
    """Measure all of it."""
    return asyncio.run(_run(quick))


async def _run(quick: bool) -> list[Figure]:
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(served())
        bare = await stack.enter_async_context(_listening(sys.executable, "-m", "bench.api_bare"))
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ours, pid = await stack.enter_async_context(_talaria(home, model))
        before = _memory(pid)
        figures = await _loads(ours, bare, quick=quick)
        figures += [
            Figure(f"memory after {_SESSIONS:,} conversations and more", _memory(pid), "MB", _MEMORY),
            Figure("of that, memory of the server at rest", before, "MB", _MEMORY),
        ]
        slow, _ = await stack.enter_async_context(_talaria(home / "slow", model, name="slow"))
        figures.append(await _lists(slow))
    return figures


async def _loads(ours: str, bare: str, *, quick: bool) -> list[Figure]:
    figures = []
    await _load(ours, 8, 64)
    await _load(bare, 8, 64, stream=True)
    for in_flight in _IN_FLIGHT:
        count = (200 if quick else 400) if in_flight == 1 else _SESSIONS // 2 if quick else _SESSIONS
        whole = await _load(ours, in_flight, count)
        streamed = await _load(ours, in_flight, count, stream=True)
        floor = await _load(bare, in_flight, count, stream=True)
        figures += _judged(in_flight, whole, streamed, floor)
    return figures


def _judged(in_flight: int, whole: Load, streamed: Load, floor: Load) -> list[Figure]:
    """Return what was measured; only the middle at 1 in flight and the rate at 64 have goals of their own."""
    rate, middle = _THROUGHPUT if in_flight == _IN_FLIGHT[-1] else 0, _LATENCY if in_flight == 1 else _ANY
    figures = [
        Figure(f"{what}, {in_flight} in flight", len(load.whole) / load.seconds, "req/s", rate, at_least=True)
        for what, load in (("whole answers", whole), ("streamed answers", streamed), ("bare application", floor))
    ]
    figures += [
        Figure(f"{what} p{part}, {in_flight} in flight", _part(load.whole, part), "ms", goal)
        for what, load in (("whole answer", whole), ("streamed answer", streamed))
        for part, goal in ((50, middle), (99, _ANY))
    ]
    if in_flight == 1:
        later = _part(streamed.first, 50) - _part(floor.first, 50)
        figures.append(Figure("first byte behind the bare application's", later, "ms", _FIRST_BYTE))
        figures.append(Figure("first words of a stream p50", _part(streamed.words, 50), "ms", middle))
    return figures


async def _lists(url: str) -> Figure:
    """Look at the list of conversations while turns run that take their time."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http, asyncio.TaskGroup() as group:
        turns = [group.create_task(_ask(http, url)) for _ in range(_SLOW_TURNS)]
        while _number(await _text(http, f"{url}/metrics"), "talaria_turns_running") < _SLOW_TURNS:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        times = []
        for _ in range(_LOOKS):
            began = perf_counter()
            await _text(http, f"{url}/v1/sessions")
            times.append(perf_counter() - began)
        for turn in turns:
            turn.cancel()
    return Figure(f"/v1/sessions p99 while {_SLOW_TURNS} turns run", _part(times, 99), "ms", _LIST)


async def _ask(http: aiohttp.ClientSession, url: str) -> None:
    body = {"messages": [{"role": "user", "content": "Tell me of the fox."}], "stream": True}
    async with http.post(url + CHAT, json=body) as answer:
        await answer.read()


async def _text(http: aiohttp.ClientSession, url: str) -> str:
    async with http.get(url) as answer:
        return await answer.text()


def _number(metrics: str, name: str) -> float:
    return next(float(line.split()[1]) for line in metrics.splitlines() if line.startswith(f"{name} "))


async def _load(url: str, in_flight: int, count: int, *, stream: bool = False) -> Load:
    """Let clients ask, from a process of their own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.api_load", url + CHAT, str(in_flight), str(count), *(["stream"] * stream),
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await process.communicate()
    return msgspec.json.decode(out, type=Load)


def _part(times: Sequence[float], percent: int) -> float:
    ordered = sorted(times)
    return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)] * 1000


def _memory(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1000


@asynccontextmanager
async def _talaria(home: Path, model: str, *, name: str = "words") -> AsyncIterator[tuple[str, int]]:
    folder = home / "profiles" / "default"
    folder.mkdir(parents=True)
    settings = f'[model]\nprovider = "mine"\nname = "{name}"\n[providers.mine]\nbase_url = "{model}/v1"\n'
    (folder / "config.toml").write_text(settings)
    environment = byte_code_environment() | {"HOME": str(home), "TALARIA_HOME": str(home)}
    process = await asyncio.create_subprocess_exec(
        installed("talaria"), "serve", "--port", "0", env=environment, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        said = (await process.stderr.readline()).decode()
        yield "http://" + said.partition("http://")[2].partition("/v1")[0], process.pid
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def _listening(*command: str) -> AsyncIterator[str]:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()

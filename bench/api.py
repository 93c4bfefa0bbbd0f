"""The API server: requests a second, latency at 1, 8 and 64 in flight, memory, and lists while turns run.

The model answers at once and has its own process, as have the clients. For comparison, a bare ASGI application streams
the same bytes. Every request is a new conversation, which is the most that a client can ask for. The goals are ratios
to Hermes, measured on the same kind of machine: 50 times its 4.7 requests a second at 64 in flight, a twentieth of its
311 ms at 1, half of its 244 MB after 1,000 conversations. With ``--peer`` it is measured in the same run.
"""

import asyncio
from contextlib import AsyncExitStack
from time import perf_counter

import aiohttp

from bench import api_peer
from bench.agent_server import served
from bench.api_load import Load
from bench.api_servers import CHAT, Server, bare, talaria, within
from bench.measure import Measurement

NAME = "api"

_THROUGHPUT, _LATENCY, _FIRST_BYTE, _MEMORY, _LIST = 235, 15.5, 3.0, 122, 50.0
_MEMORY_OF_ONE = 20
_ANY = 5000.0
_IN_FLIGHT = (1, 8, 64)
_SESSIONS = 1000
_SLOW_TURNS = 64
_LOOKS = 100


def run(quick: bool) -> list[Measurement]:
    """Measure all of it."""
    return asyncio.run(_run(quick))


def run_beside_peer(quick: bool) -> list[Measurement]:
    """Also measure Hermes under the same load, after installing it if needed; takes minutes."""
    return [*run(quick), *asyncio.run(api_peer.compared(quick))]


async def _run(quick: bool) -> list[Measurement]:
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(served())
        floor = await stack.enter_async_context(bare())
        ours = await stack.enter_async_context(talaria(model))
        figures = await _loads(ours, floor, quick=quick)
        slow = await stack.enter_async_context(talaria(model, name="slow"))
        figures.append(await _lists(slow))
    return figures


async def _loads(ours: Server, floor: Server, *, quick: bool) -> list[Measurement]:
    figures, asked, at_rest = [], 0, ours.memory()
    await ours.load(_IN_FLIGHT[-1], 128)
    await floor.load(8, 64, stream=True)
    warm = ours.memory()
    for in_flight in _IN_FLIGHT:
        count = (200 if quick else 400) if in_flight == 1 else _SESSIONS // 2 if quick else _SESSIONS
        whole = await ours.load(in_flight, count)
        streamed = await ours.load(in_flight, count, stream=True)
        least = await floor.load(in_flight, count, stream=True)
        figures += _judged(in_flight, whole, streamed, least)
        asked += 2 * count
    after = ours.memory()
    return [
        *figures,
        Measurement(f"memory after {_SESSIONS:,} conversations and more", after, "MB", _MEMORY),
        Measurement("of that, memory of the server at rest", at_rest, "MB", _MEMORY),
        Measurement(f"memory for each of {asked:,} conversations", (after - warm) / asked * 1000, "kB", _MEMORY_OF_ONE),
    ]


def _judged(in_flight: int, whole: Load, streamed: Load, least: Load) -> list[Measurement]:
    """Return what was measured; only the middle at 1 in flight and the rate at 64 have goals of their own."""
    rate, middle = _THROUGHPUT if in_flight == _IN_FLIGHT[-1] else 0, _LATENCY if in_flight == 1 else _ANY
    figures = [
        Measurement(f"{what}, {in_flight} in flight", len(load.whole) / load.seconds, "req/s", rate, at_least=True)
        for what, load in (("whole answers", whole), ("streamed answers", streamed), ("bare application", least))
    ]
    figures += [
        Measurement(f"{what} p{part}, {in_flight} in flight", within(load.whole, part), "ms", goal)
        for what, load in (("whole answer", whole), ("streamed answer", streamed))
        for part, goal in ((50, middle), (99, _ANY))
    ]
    if in_flight == 1:
        later = within(streamed.first, 50) - within(least.first, 50)
        figures.append(Measurement("first byte behind the bare application's", later, "ms", _FIRST_BYTE))
        figures.append(Measurement("first words of a stream p50", within(streamed.words, 50), "ms", middle))
    return figures


async def _lists(server: Server) -> Measurement:
    """Look at the list of conversations while turns run that take their time."""
    url, headers = server.url, {"authorization": f"Bearer {server.key}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as http, asyncio.TaskGroup() as group:
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
    return Measurement(f"/v1/sessions p99 while {_SLOW_TURNS} turns run", within(times, 99), "ms", _LIST)


async def _ask(http: aiohttp.ClientSession, url: str) -> None:
    body = {"messages": [{"role": "user", "content": "Tell me of the fox."}], "stream": True}
    async with http.post(url + CHAT, json=body, raise_for_status=True) as answer:
        await answer.read()


async def _text(http: aiohttp.ClientSession, url: str) -> str:
    async with http.get(url) as answer:
        return await answer.text()


def _number(metrics: str, name: str) -> float:
    return next(float(line.split()[1]) for line in metrics.splitlines() if line.startswith(f"{name} "))

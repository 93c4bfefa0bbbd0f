"""API server: throughput, latency at 1, 8 and 64 requests in flight, memory, and session lists during turns.

The model answers at once; model and clients have their own processes. For comparison, a bare ASGI application streams
the same bytes. Every request creates a session, which is the most expensive case. The goals are ratios to Hermes,
measured on the same kind of machine: 50 times its 4.7 requests per second at 64 in flight, a twentieth of its 311 ms
at 1, half of its 244 MB after 1,000 sessions. With ``--peer`` Hermes is measured in the same run.
"""

import asyncio
from contextlib import AsyncExitStack
from time import perf_counter

import aiohttp

from bench import api_peer
from bench.agent_server import run_model_server
from bench.api_load import Load
from bench.api_servers import CHAT, Server, percentile_ms, run_bare, run_talaria
from bench.measure import Measurement

NAME = "api"

_THROUGHPUT, _LATENCY, _FIRST_BYTE, _MEMORY, _LIST = 235, 15.5, 3.0, 122, 50.0
_MEMORY_PER_SESSION = 20
_NO_GOAL = 5000.0
_IN_FLIGHT = (1, 8, 64)
_SESSIONS = 1000
_SLOW_TURNS = 64
_LIST_REQUESTS = 100


def run(quick: bool) -> list[Measurement]:
    """Measure the API server under load, and the session list during slow turns."""
    return asyncio.run(_run(quick))


def run_with_peer(quick: bool) -> list[Measurement]:
    """Also measure Hermes under the same load, after installing it if needed; takes minutes."""
    return [*run(quick), *asyncio.run(api_peer.compare(quick))]


async def _run(quick: bool) -> list[Measurement]:
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(run_model_server())
        floor = await stack.enter_async_context(run_bare())
        ours = await stack.enter_async_context(run_talaria(model))
        measurements = await _measure_loads(ours, floor, quick=quick)
        slow = await stack.enter_async_context(run_talaria(model, name="slow"))
        measurements.append(await _measure_session_list(slow))
    return measurements


async def _measure_loads(ours: Server, floor: Server, *, quick: bool) -> list[Measurement]:
    measurements, sessions, before = [], 0, ours.memory()
    await ours.load(_IN_FLIGHT[-1], 128)
    await floor.load(8, 64, stream=True)
    warm = ours.memory()
    for in_flight in _IN_FLIGHT:
        count = (200 if quick else 400) if in_flight == 1 else _SESSIONS // 2 if quick else _SESSIONS
        complete = await ours.load(in_flight, count)
        streamed = await ours.load(in_flight, count, stream=True)
        bare = await floor.load(in_flight, count, stream=True)
        measurements += _compare_loads(in_flight, complete, streamed, bare)
        sessions += 2 * count
    after = ours.memory()
    return [
        *measurements,
        Measurement(f"memory after at least {_SESSIONS:,} sessions", after, "MB", _MEMORY),
        Measurement("memory before the first request", before, "MB", _MEMORY),
        Measurement(
            f"memory per session, {sessions:,} sessions", (after - warm) / sessions * 1000, "kB", _MEMORY_PER_SESSION
        ),
    ]


def _compare_loads(in_flight: int, complete: Load, streamed: Load, bare: Load) -> list[Measurement]:
    """Return rates and latencies; only the median at 1 in flight and the rate at 64 have goals."""
    rate_goal, median_goal = _THROUGHPUT if in_flight == _IN_FLIGHT[-1] else 0, _LATENCY if in_flight == 1 else _NO_GOAL
    measurements = [
        Measurement(
            f"{label}, {in_flight} in flight", len(load.total) / load.seconds, "req/s", rate_goal, at_least=True
        )
        for label, load in (
            ("non-streamed answers", complete),
            ("streamed answers", streamed),
            ("bare application", bare),
        )
    ]
    measurements += [
        Measurement(f"{label} p{percent}, {in_flight} in flight", percentile_ms(load.total, percent), "ms", goal)
        for label, load in (("non-streamed answer", complete), ("streamed answer", streamed))
        for percent, goal in ((50, median_goal), (99, _NO_GOAL))
    ]
    if in_flight == 1:
        delay = percentile_ms(streamed.first_byte, 50) - percentile_ms(bare.first_byte, 50)
        measurements.append(Measurement("first byte, delay over the bare application", delay, "ms", _FIRST_BYTE))
        measurements.append(
            Measurement("first text of a stream p50", percentile_ms(streamed.first_text, 50), "ms", median_goal)
        )
    return measurements


async def _measure_session_list(server: Server) -> Measurement:
    """Request the list of sessions while slow turns run."""
    url, headers = server.url, {"authorization": f"Bearer {server.key}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as http, asyncio.TaskGroup() as group:
        turns = [group.create_task(_run_turn(http, url)) for _ in range(_SLOW_TURNS)]
        while _read_metric(await _get_text(http, f"{url}/metrics"), "talaria_turns_running") < _SLOW_TURNS:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        times = []
        for _ in range(_LIST_REQUESTS):
            began = perf_counter()
            await _get_text(http, f"{url}/v1/sessions")
            times.append(perf_counter() - began)
        for turn in turns:
            turn.cancel()
    return Measurement(f"/v1/sessions p99 while {_SLOW_TURNS} turns run", percentile_ms(times, 99), "ms", _LIST)


async def _run_turn(http: aiohttp.ClientSession, url: str) -> None:
    body = {"messages": [{"role": "user", "content": "Tell me of the fox."}], "stream": True}
    async with http.post(url + CHAT, json=body, raise_for_status=True) as answer:
        await answer.read()


async def _get_text(http: aiohttp.ClientSession, url: str) -> str:
    async with http.get(url) as answer:
        return await answer.text()


def _read_metric(metrics: str, name: str) -> float:
    return next(float(line.split()[1]) for line in metrics.splitlines() if line.startswith(f"{name} "))

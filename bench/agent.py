"""Cost of an agent turn, compared with a bare client that sends the same requests to the same server."""

import asyncio
import gc
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time

from bench.agent_floor import BareClient
from bench.agent_server import answer, run_model_server
from bench.agent_turns import TurnRunner, open_turn_runners
from bench.measure import Measurement
from bench.store_lag import run_with_lag
from talaria.testing.model_server import ModelServer

NAME = "agent"

_ROUNDS = 5
_CONCURRENT = 200
_LAG_RUNS = 3
_TURNS = {
    "short": ("turn without tools", 3),
    "ten-at-once": ("turn with ten tool calls in one reply", 10),
    "ten-in-turn": ("turn with ten tool calls in sequence", 10),
}


def run(quick: bool) -> list[Measurement]:
    """Measure request size, added CPU time, delay of the first text, and 200 concurrent turns."""
    with TemporaryDirectory(dir=Path.home()) as folder:
        return asyncio.run(_measure(Path(folder), turns=20 if quick else 100))


async def _measure(folder: Path, *, turns: int) -> list[Measurement]:
    async with open_turn_runners(folder) as make, run_model_server() as url:
        bodies = {model: await _record_requests(make, model) for model in _TURNS}
        measurements = [
            Measurement('request for "hi" with the default tools', len(bodies["short"][0]), "bytes", 12_000)
        ]
        async with BareClient(url) as bare:
            for model, (name, goal) in _TURNS.items():
                measurements.append(await _measure_added_cpu(name, goal, make(url, model), bare, bodies[model], turns))
            measurements.append(await _measure_first_text(make(url, "short"), bare, bodies["short"], turns))
        measurements.append(await _measure_lag(make(url, "short"), rounds=5 if turns < 100 else 15))
    return measurements


async def _record_requests(make: Callable[[str, str], TurnRunner], model: str) -> list[bytes]:
    """Run one turn and return the bodies of its requests."""
    async with ModelServer() as server:
        server.answering(answer)
        turns = make(server.url, model)
        await turns.create_sessions(1)
        await turns.run_turn()
        return [received.body for received in server.received]


async def _measure_added_cpu(
    name: str, goal: float, ours: TurnRunner, bare: BareClient, bodies: list[bytes], turns: int
) -> Measurement:
    added = list[float]()
    await ours.create_sessions(turns * (_ROUNDS + 1))
    for number in range(_ROUNDS + 1):
        spent = await _measure_cpu(ours.run_turn, turns)
        floor = await _measure_cpu(lambda: bare.send(bodies), turns)
        if number:
            added.append(spent - floor)
            print(f"{name}: {spent:.2f} ms of CPU, bare client {floor:.2f} ms ({len(bodies)} requests)", flush=True)
    return Measurement(f"{name}, CPU added", median(added), "ms", goal)


async def _measure_cpu(call: Callable[[], Awaitable[object]], times: int) -> float:
    """Return the CPU milliseconds of one call, averaged over ``times`` calls; includes all threads."""
    gc.collect()
    began = process_time()
    for _ in range(times):
        await call()
    return (process_time() - began) / times * 1000


async def _measure_first_text(ours: TurnRunner, bare: BareClient, bodies: list[bytes], turns: int) -> Measurement:
    await ours.create_sessions(turns)
    pairs = [(await ours.run_turn() * 1000, await bare.send(bodies) * 1000) for _ in range(turns)]
    ours_median, floor = (median(column) for column in zip(*pairs, strict=True))
    print(
        f"first text {ours_median:.2f} ms after the start of the turn; bare client: first byte after {floor:.2f} ms",
        flush=True,
    )
    return Measurement(
        "added delay of the first text", median(ours_ms - bare_ms for ours_ms, bare_ms in pairs), "ms", 1.5
    )


async def _measure_lag(ours: TurnRunner, *, rounds: int) -> Measurement:
    await ours.create_sessions(rounds * _CONCURRENT * _LAG_RUNS)

    async def run_all() -> None:
        remaining = count(rounds * _CONCURRENT, -1)
        async with asyncio.TaskGroup() as group:
            for _ in range(_CONCURRENT):
                group.create_task(_run_turns(ours, remaining))

    lags = [(await run_with_lag(run_all()))[1] for _ in range(_LAG_RUNS)]
    for lag in lags:
        print(
            f"loop lag of {_CONCURRENT} turns at once: p99 {lag.ours.p99:.1f} ms, worst {lag.ours.worst:.1f} ms;"
            f" an idle loop at the same time {lag.idle.p99:.2f} ms",
            flush=True,
        )
    return Measurement(f"loop lag p99, {_CONCURRENT} turns at once", median(lag.ours.p99 for lag in lags), "ms", 50)


async def _run_turns(ours: TurnRunner, remaining: "count[int]") -> None:
    while next(remaining) > 0:
        await ours.run_turn()

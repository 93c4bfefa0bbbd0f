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
from bench.agent_server import answer, served
from bench.agent_turns import Turns, opened
from bench.measure import Measurement
from bench.store_lag import with_lag
from talaria.testing.model_server import ModelServer

NAME = "agent"

_ROUNDS = 5
_AT_ONCE = 200
_LAG_RUNS = 3
_TURNS = {
    "words": ("turn without tools", 3),
    "ten-at-once": ("turn with ten calls in a reply", 10),
    "ten-in-turn": ("turn with ten calls in turn", 10),
}


def run(quick: bool) -> list[Measurement]:
    """Measure the request, the processor's time of turns, the first word, and 200 turns at once."""
    with TemporaryDirectory(dir=Path.home()) as folder:
        return asyncio.run(_measure(Path(folder), turns=20 if quick else 100))


async def _measure(folder: Path, *, turns: int) -> list[Measurement]:
    async with opened(folder) as make, served() as url:
        bodies = {model: await _bodies(make, model) for model in _TURNS}
        figures = [Measurement('request for "hi" with the default tools', len(bodies["words"][0]), "bytes", 12_000)]
        async with BareClient(url) as bare:
            for model, (name, goal) in _TURNS.items():
                figures.append(await _cpu_figure(name, goal, make(url, model), bare, bodies[model], turns))
            figures.append(await _first_word_figure(make(url, "words"), bare, bodies["words"], turns))
        figures.append(await _lag_figure(make(url, "words"), rounds=5 if turns < 100 else 15))
    return figures


async def _bodies(make: Callable[[str, str], Turns], model: str) -> list[bytes]:
    """Return the requests of one turn, as a server receives them."""
    async with ModelServer() as server:
        server.answering(answer)
        turns = make(server.url, model)
        await turns.prepare(1)
        await turns.take()
        return [received.body for received in server.received]


async def _cpu_figure(
    name: str, goal: float, ours: Turns, bare: BareClient, bodies: list[bytes], turns: int
) -> Measurement:
    added = list[float]()
    await ours.prepare(turns * (_ROUNDS + 1))
    for number in range(_ROUNDS + 1):
        taken = await _cpu(ours.take, turns)
        floor = await _cpu(lambda: bare.send(bodies), turns)
        if number:
            added.append(taken - floor)
            print(f"{name}: {taken:.2f} ms of CPU, bare {floor:.2f} ms ({len(bodies)} requests)", flush=True)
    return Measurement(f"{name}, CPU added", median(added), "ms", goal)


async def _cpu(work: Callable[[], Awaitable[object]], times: int) -> float:
    """Return the milliseconds of processor time, all threads included, that one round of some work takes."""
    gc.collect()
    began = process_time()
    for _ in range(times):
        await work()
    return (process_time() - began) / times * 1000


async def _first_word_figure(ours: Turns, bare: BareClient, bodies: list[bytes], turns: int) -> Measurement:
    await ours.prepare(turns)
    pairs = [(await ours.take() * 1000, await bare.send(bodies) * 1000) for _ in range(turns)]
    taken, floor = (median(column) for column in zip(*pairs, strict=True))
    print(f"first word {taken:.2f} ms after the start of the turn; bare, first byte after {floor:.2f} ms", flush=True)
    return Measurement("first word passed on later", median(one - other for one, other in pairs), "ms", 1.5)


async def _lag_figure(ours: Turns, *, rounds: int) -> Measurement:
    await ours.prepare(rounds * _AT_ONCE * _LAG_RUNS)

    async def all_at_once() -> None:
        left = count(rounds * _AT_ONCE, -1)
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(_run_turns(ours, left))

    lags = [(await with_lag(all_at_once()))[1] for _ in range(_LAG_RUNS)]
    for one in lags:
        print(
            f"loop lag of {_AT_ONCE} turns at once: p99 {one.ours.p99:.1f} ms, worst {one.ours.worst:.1f} ms;"
            f" an idle loop meanwhile {one.idle.p99:.2f} ms",
            flush=True,
        )
    return Measurement(f"loop lag p99, {_AT_ONCE} turns at once", median(one.ours.p99 for one in lags), "ms", 50)


async def _run_turns(ours: Turns, left: "count[int]") -> None:
    while next(left) > 0:
        await ours.take()

"""Lag of an event loop, compared with an idle loop in another process at the same time."""

import asyncio
import sys
from collections.abc import Awaitable
from time import perf_counter
from typing import TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T")
_TICK = 0.001


class Lag(Struct, frozen=True):
    """Delays in milliseconds."""

    p99: float
    worst: float


class LoopLags(Struct, frozen=True):
    """The lag of a loop at work and of an idle one in the same seconds."""

    ours: Lag
    idle: Lag

    @property
    def excess(self) -> float:
        """By how much the worst delay at work exceeds the idle loop's, in milliseconds."""
        return max(0.0, self.ours.worst - self.idle.worst)


async def with_lag(work: Awaitable[T]) -> tuple[T, LoopLags]:
    """Await some work and return its result with the lag that this loop had meanwhile."""
    idle = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.store_lag", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert idle.stdout is not None
    await idle.stdout.readline()
    delays: list[float] = []
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(_watch(delays))
        result = await work
        watching.cancel()
    told, _ = await idle.communicate(b"\n")
    return result, LoopLags(_summary(delays), msgspec.json.decode(told, type=Lag))


async def _watch(delays: list[float]) -> None:
    while True:
        start = perf_counter()
        await asyncio.sleep(_TICK)
        delays.append(perf_counter() - start - _TICK)


def _summary(delays: list[float]) -> Lag:
    ordered = sorted(delay * 1000 for delay in delays) or [0.0]
    return Lag(p99=ordered[int(len(ordered) * 0.99)], worst=ordered[-1])


async def _idle() -> None:
    """Measure an idle loop between a first line to standard output and one from standard input."""
    print("watching", flush=True)
    delays: list[float] = []
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(_watch(delays))
        await asyncio.to_thread(sys.stdin.readline)
        watching.cancel()
    print(msgspec.json.encode(_summary(delays)).decode())


if __name__ == "__main__":
    asyncio.run(_idle())

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
    """Lag of an event loop in milliseconds."""

    p99: float
    worst: float


class LoopLags(Struct, frozen=True):
    """Lag of a busy loop and of an idle loop at the same time."""

    ours: Lag
    idle: Lag

    @property
    def excess(self) -> float:
        """Difference between the worst lags of the busy and the idle loop, in milliseconds."""
        return max(0.0, self.ours.worst - self.idle.worst)


async def run_with_lag(work: Awaitable[T]) -> tuple[T, LoopLags]:
    """Await some work; return its result and the lag of this loop in the meantime."""
    idle = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.store_lag", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert idle.stdout is not None
    await idle.stdout.readline()
    delays: list[float] = []
    async with asyncio.TaskGroup() as group:
        recording = group.create_task(_record_lag(delays))
        result = await work
        recording.cancel()
    output, _ = await idle.communicate(b"\n")
    return result, LoopLags(_summarize(delays), msgspec.json.decode(output, type=Lag))


async def _record_lag(delays: list[float]) -> None:
    while True:
        start = perf_counter()
        await asyncio.sleep(_TICK)
        delays.append(perf_counter() - start - _TICK)


def _summarize(delays: list[float]) -> Lag:
    ordered = sorted(delay * 1000 for delay in delays) or [0.0]
    return Lag(p99=ordered[int(len(ordered) * 0.99)], worst=ordered[-1])


async def _idle() -> None:
    """Measure an idle loop: print a line at the start, and the lag when a line arrives on standard input."""
    print("watching", flush=True)
    delays: list[float] = []
    async with asyncio.TaskGroup() as group:
        recording = group.create_task(_record_lag(delays))
        await asyncio.to_thread(sys.stdin.readline)
        recording.cancel()
    print(msgspec.json.encode(_summarize(delays)).decode())


if __name__ == "__main__":
    asyncio.run(_idle())

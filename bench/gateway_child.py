"""Process under load: ``python -m bench.gateway_child gateway|bare HOME`` runs commands from its input.

``watch`` starts to measure the lag of the event loop, ``report`` prints that lag and the memory. A bare agent, which
has sessions but no gateway, also has ``wave COUNT``: send a message in that many sessions at once.
"""

import asyncio
import gc
import os
import sys
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

import msgspec
from msgspec import Struct

from talaria.app.application import TalariaApplication, open_application
from talaria.app.gateway.build import serve_gateway
from talaria.core.aio import StopSignal
from talaria.core.events import TurnAnswered
from talaria.core.ids import new_id
from talaria.core.messages import Message, Text
from talaria.runtime.open_session import OpenRequest, OpenSession, SurfaceInfo
from talaria.settings.load import load_settings
from talaria.settings.profiles import Profiles
from talaria.settings.secrets import read_secrets

_TICK = 0.005


class LoadReport(Struct, frozen=True):
    """Lag of the event loop in milliseconds, and memory in bytes."""

    lag_p99: float
    lag_worst: float
    memory: int


class Wave(Struct, frozen=True):
    """Times of a wave of messages in seconds: the whole wave, and the wait for each answer."""

    seconds: float
    waits: list[float]


class _CommandLoop:
    """Reads commands from standard input and prints their results as JSON."""

    def __init__(self, application: TalariaApplication, jobs: asyncio.TaskGroup, stack: AsyncExitStack) -> None:
        self._application = application
        self._jobs = jobs
        self._stack = stack
        self._lags: list[float] = []
        self._chats: list[OpenSession] = []

    async def serve(self) -> None:
        """Run commands until the input ends."""
        watching = self._jobs.create_task(self._watch())
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            match line.split():
                case ["watch"]:
                    self._lags.clear()
                    print("{}", flush=True)
                case ["report"]:
                    print(msgspec.json.encode(self._report()).decode(), flush=True)
                case ["wave", count]:
                    print(msgspec.json.encode(await self._run_wave(int(count))).decode(), flush=True)
        watching.cancel()

    async def _watch(self) -> None:
        while True:
            start = perf_counter()
            await asyncio.sleep(_TICK)
            self._lags.append((perf_counter() - start - _TICK) * 1000)

    def _report(self) -> LoadReport:
        ordered = sorted(self._lags) or [0.0]
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return LoadReport(ordered[int(len(ordered) * 0.99)], ordered[-1], pages * os.sysconf("SC_PAGE_SIZE"))

    async def _run_wave(self, count: int) -> Wave:
        began = perf_counter()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._run_turn(number)) for number in range(count)]
        return Wave(perf_counter() - began, [task.result() - began for task in tasks])

    async def _run_turn(self, number: int) -> float:
        """Run a turn in a session, which is opened first if needed; return the time of its end."""
        if number < len(self._chats):
            chat = self._chats[number]
        else:
            request = OpenRequest(surface=SurfaceInfo(source="bench", folder=Path.cwd(), lasting=True))
            chat = await self._application.open_session(request, self._stack, self._jobs)
            self._chats.append(chat)
        message = Message(role="user", parts=(Text("hi"),), at=datetime.now(UTC))
        end = await chat.conversation.say(message, source="bench", external_id=new_id())
        assert isinstance(end, TurnAnswered), end
        return perf_counter()


async def _run(kind: str, home: Path) -> None:
    profile = Profiles(home).active()
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        settings = load_settings(profile, environment)
        application = open_application(settings, profile, read_secrets(profile, environment), environment, stack)
        stop = StopSignal()
        serving = jobs.create_task(serve_gateway(application, stop, as_worker=False)) if kind == "gateway" else None
        await _CommandLoop(application, jobs, stack).serve()
        stop.set()
        if serving is not None:
            await serving


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], Path(sys.argv[2])))

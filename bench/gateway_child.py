"""The process under load: ``python -m bench.gateway_child gateway|bare HOME`` obeys the lines of its input.

``watch`` begins to measure how late its event loop is, ``told`` prints that and its memory. A bare agent, which is a
conversation without a gateway, also understands ``wave COUNT``: so many conversations say something at once.
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


class Told(Struct, frozen=True):
    """Lag of the loop in milliseconds, and memory in bytes."""

    lag_p99: float
    lag_worst: float
    memory: int


class Wave(Struct, frozen=True):
    """What a wave of messages took, in seconds: all of it, and each answer."""

    seconds: float
    waits: list[float]


class _CommandLoop:
    """Does what the lines of the input say."""

    def __init__(self, application: TalariaApplication, jobs: asyncio.TaskGroup, stack: AsyncExitStack) -> None:
        self._application = application
        self._jobs = jobs
        self._stack = stack
        self._delays: list[float] = []
        self._chats: list[OpenSession] = []

    async def obey(self) -> None:
        """Return when the input ends."""
        watching = self._jobs.create_task(self._watch())
        while line := (await asyncio.to_thread(sys.stdin.readline)).strip():
            match line.split():
                case ["watch"]:
                    self._delays.clear()
                    print("{}", flush=True)
                case ["told"]:
                    print(msgspec.json.encode(self._told()).decode(), flush=True)
                case ["wave", count]:
                    print(msgspec.json.encode(await self._wave(int(count))).decode(), flush=True)
        watching.cancel()

    async def _watch(self) -> None:
        while True:
            start = perf_counter()
            await asyncio.sleep(_TICK)
            self._delays.append((perf_counter() - start - _TICK) * 1000)

    def _told(self) -> Told:
        ordered = sorted(self._delays) or [0.0]
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return Told(ordered[int(len(ordered) * 0.99)], ordered[-1], pages * os.sysconf("SC_PAGE_SIZE"))

    async def _wave(self, count: int) -> Wave:
        began = perf_counter()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._say(number)) for number in range(count)]
        return Wave(perf_counter() - began, [task.result() - began for task in tasks])

    async def _say(self, number: int) -> float:
        """Say something in one of the conversations, which is opened where it is not yet."""
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


async def _run(what: str, home: Path) -> None:
    profile = Profiles(home).active()
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin"}
    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        settings = load_settings(profile, environment)
        application = open_application(settings, profile, read_secrets(profile, environment), environment, stack)
        stop = StopSignal()
        serving = jobs.create_task(serve_gateway(application, stop, as_worker=False)) if what == "gateway" else None
        await _CommandLoop(application, jobs, stack).obey()
        stop.set()
        if serving is not None:
            await serving


if __name__ == "__main__":
    asyncio.run(_run(sys.argv[1], Path(sys.argv[2])))

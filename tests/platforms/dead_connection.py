"""A wire that can go dead: it stays open on both ends, takes what is sent, and carries nothing any more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from talaria.contracts.platform import Incoming, Platform
from talaria.contracts.store import Store
from talaria.gateway.receiver import Receiver
from talaria.testing.wait import LIMIT, until

_SECONDS = LIMIT


class Wire:
    """A port of loopback that leads to an address. While it is dead, new connections are accepted, too, and silent."""

    def __init__(self, target: str) -> None:
        there = urlsplit(target)
        self._host, self._port = there.hostname or "127.0.0.1", there.port or 80
        self._alive = asyncio.Event()
        self._alive.set()
        self._tasks: set[asyncio.Task[object] | None] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.url = ""
        self.held_back = 0

    def die(self) -> None:
        """Stop forwarding in both directions, without closing the connection."""
        self._alive.clear()

    def revive(self) -> None:
        """Carry again what is sent through new connections; those of before stay as they are."""
        self._alive = asyncio.Event()
        self._alive.set()

    def cut(self) -> None:
        """Break all connections once."""
        for writer in self._writers:
            writer.transport.abort()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.url.rpartition(":")[2])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        tasks = [task for task in self._tasks if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        try:
            await self._connect(reader, writer, self._alive)
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, alive: asyncio.Event) -> None:
        self._writers.add(writer)
        there, back = await asyncio.open_connection(self._host, self._port)
        self._writers.add(back)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._carry(reader, back, alive))
                group.create_task(self._carry(there, writer, alive))
        finally:
            back.transport.abort()
            self._writers -= {writer, back}

    async def _carry(self, source: asyncio.StreamReader, to: asyncio.StreamWriter, alive: asyncio.Event) -> None:
        while data := await source.read(65536):
            if not alive.is_set():
                self.held_back += 1
                continue
            to.write(data)
            await to.drain()
        if alive.is_set():
            raise ConnectionResetError
        await asyncio.Event().wait()  # that the other end hung up is not carried either


class Hearing:
    """A network at work, as the gateway keeps it, and what was heard of it."""

    def __init__(self, platform: Platform, store: Store) -> None:
        self.network = Receiver(platform, store, self._take, lease=timedelta(seconds=15))
        self.heard: list[str] = []

    async def _take(self, incoming: Incoming) -> str:
        self.heard.append(incoming.text)
        return ""

    async def until(self, state: str, *heard: str) -> None:
        """Wait until it is in a state and has heard these."""
        await until(lambda: self.network.status.state == state and {*heard} <= {*self.heard})


@asynccontextmanager
async def hearing(platform: Platform, store: Store) -> AsyncIterator[Hearing]:
    there = Hearing(platform, store)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(there.network.serve())
        yield there
        serving.cancel()

"""A TCP proxy that can go dead: its connections stay open and accept data, but nothing is forwarded."""

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
    """A loopback port that forwards to an address. While it is dead, new connections are accepted but stay silent."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._alive = asyncio.Event()
        self._alive.set()
        self._tasks: set[asyncio.Task[object] | None] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.url = ""
        self.dropped = 0

    def die(self) -> None:
        """Stop forwarding in both directions, without closing the connection."""
        self._alive.clear()

    def revive(self) -> None:
        """Forward data of new connections again; the earlier ones stay dead."""
        self._alive = asyncio.Event()
        self._alive.set()

    def cut(self) -> None:
        """Break all connections once."""
        for writer in self._writers:
            writer.transport.abort()

    @property
    def port(self) -> int:
        """The port that it listens on."""
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
        upstream, back = await asyncio.open_connection(self._host, self._port)
        self._writers.add(back)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._forward(reader, back, alive))
                group.create_task(self._forward(upstream, writer, alive))
        finally:
            back.transport.abort()
            self._writers -= {writer, back}

    async def _forward(self, source: asyncio.StreamReader, to: asyncio.StreamWriter, alive: asyncio.Event) -> None:
        while data := await source.read(65536):
            if not alive.is_set():
                self.dropped += 1
                continue
            to.write(data)
            await to.drain()
        if alive.is_set():
            raise ConnectionResetError
        await asyncio.Event().wait()  # the end of the connection isn't forwarded either


class RunningReceiver:
    """A running receiver of a platform, as in the gateway, and the texts that it received."""

    def __init__(self, platform: Platform, store: Store) -> None:
        self.receiver = Receiver(platform, store, self._receive, lease=timedelta(seconds=15))
        self.received: list[str] = []

    async def _receive(self, incoming: Incoming) -> str:
        self.received.append(incoming.text)
        return ""

    async def until(self, state: str, *received: str) -> None:
        """Wait until the receiver is in this state and has received these texts."""
        await until(lambda: self.receiver.status.state == state and {*received} <= {*self.received})


@asynccontextmanager
async def running_receiver(platform: Platform, store: Store) -> AsyncIterator[RunningReceiver]:
    running = RunningReceiver(platform, store)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(running.receiver.serve())
        yield running
        serving.cancel()

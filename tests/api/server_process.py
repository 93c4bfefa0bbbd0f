"""`talaria serve` as a process that tests can kill and restart, and clients that follow runs."""

import asyncio
import os
import re
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import httpx
from tests.app import warm_program
from tests.app.program import Program
from tests.app.warm_program import WarmProcess
from tests.http.loopback_client import loopback_client

from talaria.access.api_keys import read_key_file
from talaria.settings.profiles import Profiles
from talaria.testing.system_servers import free_port

PATIENCE = 60.0
_ADDRESS = re.compile(rb"(http://[\d.:]+)/v1")


@dataclass
class Server:
    """The program at one port; ``url`` is its address without ``/v1``."""

    program: Program
    port: int = field(default_factory=free_port)
    url: str = ""
    process: WarmProcess | None = None
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The key that the server created at its first start."""
        return read_key_file(Profiles(self.program.home).active())

    async def start(self) -> Self:
        """Listen at the same port as before, or at another one if it is in use."""
        for port in dict.fromkeys((self.port, 0)):
            if await self._listens_at(port):
                return self
        raise AssertionError("the server did not start to listen")

    async def _listens_at(self, port: int) -> bool:
        self.process = await warm_program.start(
            "serve",
            "--port",
            str(port),
            env=self.program.environment(**self.environment),
            cwd=self.program.home / "work",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
        )
        assert self.process.stderr is not None
        async with asyncio.timeout(PATIENCE):
            while line := await self.process.stderr.readline():
                if found := _ADDRESS.search(line):
                    self.url = found[1].decode()
                    self.port = int(self.url.rpartition(":")[2])
                    return True
        return False

    async def kill(self) -> None:
        """Kill the process without warning."""
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        await self.process.wait()

    async def end(self) -> int:
        """Terminate the process, and return its exit code."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.terminate()
        async with asyncio.timeout(PATIENCE):
            await self.process.communicate()
        return self.process.returncode or 0


@asynccontextmanager
async def serving(program: Program, **environment: str) -> AsyncIterator[Server]:
    """Serve for the length of a block."""
    server = await Server(program, environment=environment).start()
    try:
        yield server
    finally:
        await server.end()


@asynccontextmanager
async def client(server: Server, key: str | None = None) -> AsyncIterator[httpx.AsyncClient]:
    """Return a client with a key: the first one of the server, unless another is given."""
    used_key = server.key if key is None else key
    headers = {"authorization": f"Bearer {used_key}"} if used_key else {}
    async with loopback_client(server.url, headers=headers, timeout=PATIENCE) as http:
        yield http


@dataclass(frozen=True)
class ServerSentEvent:
    """One server-sent event."""

    number: int | None
    name: str
    data: Any


async def follow(
    http: httpx.AsyncClient,
    path: str,
    *,
    until: Callable[[ServerSentEvent], bool] | None = None,
    headers: Mapping[str, str] | None = None,
) -> list[ServerSentEvent]:
    """Return the events of a stream, all of them or up to the first that matches ``until``."""
    events: list[ServerSentEvent] = []
    async with http.stream("GET", path, headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        async for event in read_events(response):
            events.append(event)
            if until is not None and until(event):
                break
    return events


async def read_events(response: httpx.Response) -> AsyncIterator[ServerSentEvent]:
    """Yield the events of a stream."""
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
        elif not line and fields:
            data = fields.get("data", "")
            number = int(fields["id"]) if "id" in fields else None
            yield ServerSentEvent(
                number, fields.get("event", ""), httpx.Response(200, text=data).json() if data[:1] == "{" else data
            )
            fields = {}

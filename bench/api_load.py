"""Clients of the API in a process of their own: ``python -m bench.api_load URL IN_FLIGHT COUNT [stream]`` prints times.

Each client keeps one connection and asks again when it has its answer. The connections are bare sockets, so that what
is measured is the server.
"""

import asyncio
import sys
from time import perf_counter
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

_END, _DONE = b"0\r\n\r\n", b"data: [DONE]"


class Load(Struct, frozen=True):
    """What some requests took, in seconds: all of them together, each, each to its first byte and its first words."""

    seconds: float
    whole: list[float]
    first: list[float]
    words: list[float]


class _Client(asyncio.Protocol):
    """One connection with one request at a time."""

    def __init__(self) -> None:
        self._received = bytearray()
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.first = self.words = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def ask(self, request: bytes) -> asyncio.Future[None]:
        self._received.clear()
        self.first = self.words = 0.0
        self.done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self.done

    def data_received(self, data: bytes) -> None:
        self._received += data
        head = self._received.find(b"\r\n\r\n")
        if head < 0:
            return
        body = len(self._received) - head - 4
        if body and not self.first:
            self.first = perf_counter()
        if not self.words and (self._received.count(b"data: ") > 1 or b'"message"' in data):
            self.words = perf_counter()
        if self._is_whole(head, body) and not self.done.done():
            self.done.set_result(None)

    def _is_whole(self, head: int, body: int) -> bool:
        if self._received.endswith(_END):
            return _DONE in self._received[-64:] or b'"error"' in self._received
        length = self._received.find(b"content-length: ", 0, head)
        return length >= 0 and body >= int(self._received[length + 16 : self._received.index(b"\r\n", length)])

    def check(self) -> None:
        assert self._received.startswith(b"HTTP/1.1 200"), bytes(self._received[:600])

    def close(self) -> None:
        self._transport.close()


async def load(url: str, in_flight: int, count: int, *, stream: bool) -> Load:
    """Ask ``count`` times, so many at once."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 0
    body = msgspec.json.encode(
        {"model": "talaria", "stream": stream, "messages": [{"role": "user", "content": "Tell me of the fox."}]}
    )
    request = (
        f"POST {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode() + body
    left = iter(range(count))
    whole: list[float] = []
    first: list[float] = []
    words: list[float] = []

    async def one() -> None:
        _, client = await asyncio.get_running_loop().create_connection(_Client, host, port)
        for _ in left:
            began = perf_counter()
            await client.ask(request)
            whole.append(perf_counter() - began)
            first.append(client.first - began)
            words.append((client.words or perf_counter()) - began)
            client.check()
        client.close()

    began = perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(one())
    return Load(perf_counter() - began, whole, first, words)


if __name__ == "__main__":
    found = asyncio.run(load(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), stream="stream" in sys.argv))
    sys.stdout.write(msgspec.json.encode(found).decode())

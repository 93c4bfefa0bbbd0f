"""Clients of the API in a process of their own: ``python -m bench.api_load URL IN_FLIGHT COUNT`` prints times.

Each client keeps one connection and asks again when it has its answer. The connections are bare sockets, so that what
is measured is the server. No question is asked twice: there are servers that take equal first words for one
conversation.
"""

import argparse
import asyncio
import secrets
import sys
from collections.abc import Callable
from contextlib import closing
from time import perf_counter
from urllib.parse import urlsplit

import msgspec
from httptools import HttpResponseParser
from msgspec import Struct

_OK = 200
_DONE, _STOPPED = b"data: [DONE]", b'"stop"'


class Load(Struct, frozen=True):
    """What some requests took, in seconds: all of them together, each, each to its first byte and its first words."""

    seconds: float
    whole: list[float]
    first: list[float]
    words: list[float]


class _Client(asyncio.Protocol):
    """One connection with one request at a time."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.first = self.words = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def ask(self, request: bytes) -> asyncio.Future[None]:
        self._body.clear()
        self._parser = HttpResponseParser(self)
        self.first = self.words = 0.0
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._done

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, piece: bytes) -> None:
        self._body += piece
        if not self.first:
            self.first = perf_counter()
        if not self.words and (self._body.count(b"data: ") > 1 or b'"message"' in piece):
            self.words = perf_counter()

    def on_message_complete(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or ConnectionResetError("the server hung up before its answer was whole"))

    def check(self, *, stream: bool) -> None:
        """Fail unless the agent has said all it had to say: what is refused or goes wrong is no figure."""
        assert self._parser.get_status_code() == _OK, bytes(self._body[:600])
        assert _STOPPED in self._body, bytes(self._body[-600:])
        assert not stream or _DONE in self._body[-64:], bytes(self._body[-600:])

    def close(self) -> None:
        self._transport.close()


async def load(url: str, in_flight: int, count: int, *, stream: bool = False, key: str = "") -> Load:
    """Ask ``count`` times, so many at once."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 0
    requests = _requests(url, stream=stream, key=key)
    left = iter(range(count))
    whole: list[float] = []
    first: list[float] = []
    words: list[float] = []

    async def one() -> None:
        _, client = await asyncio.get_running_loop().create_connection(_Client, host, port)
        with closing(client):
            for number in left:
                request = requests(number)
                began = perf_counter()
                await client.ask(request)
                whole.append(perf_counter() - began)
                first.append(client.first - began)
                words.append((client.words or perf_counter()) - began)
                client.check(stream=stream)

    began = perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(one())
    return Load(perf_counter() - began, whole, first, words)


def _requests(url: str, *, stream: bool, key: str) -> Callable[[int], bytes]:
    """Return what makes the request with a number; all are of the same length, and none is like any other."""
    parts, mark = urlsplit(url), secrets.token_hex(4)
    bearer = f"authorization: Bearer {key}\r\n" if key else ""

    def request(number: int) -> bytes:
        question = {"role": "user", "content": f"Tell me of fox {mark}-{number:06}."}
        body = msgspec.json.encode({"model": "talaria", "stream": stream, "messages": [question]})
        head = (
            f"POST {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\n{bearer}content-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    return request


def _main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.api_load")
    parser.add_argument("url")
    parser.add_argument("in_flight", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--stream", action="store_true")
    parser.add_argument("--key", default="")
    asked = parser.parse_args()
    found = asyncio.run(load(asked.url, asked.in_flight, asked.count, stream=asked.stream, key=asked.key))
    sys.stdout.write(msgspec.json.encode(found).decode())


if __name__ == "__main__":
    _main()

"""Load generator for API servers: ``python -m bench.api_load URL IN_FLIGHT COUNT`` prints times as JSON.

Each client has one connection and sends its next request when the answer is complete. The connections are bare
sockets, to keep the cost of the clients low. Every question is unique, because some servers continue a session if its
first message is repeated.
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
    """Times of a load test in seconds; the lists have one entry per request.

    ``seconds`` is the duration of the whole test, ``total`` the time to the end of an answer.
    """

    seconds: float
    total: list[float]
    first_byte: list[float]
    first_text: list[float]


class _Client(asyncio.Protocol):
    """Connection that has at most one request in flight."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.first_byte = self.first_text = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def send(self, request: bytes) -> asyncio.Future[None]:
        self._body.clear()
        self._parser = HttpResponseParser(self)
        self.first_byte = self.first_text = 0.0
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._done

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, piece: bytes) -> None:
        self._body += piece
        if not self.first_byte:
            self.first_byte = perf_counter()
        if not self.first_text and (self._body.count(b"data: ") > 1 or b'"message"' in piece):
            self.first_text = perf_counter()

    def on_message_complete(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(
                exc or ConnectionResetError("the server closed the connection before its answer was complete")
            )

    def check(self, *, stream: bool) -> None:
        """Fail unless the answer is complete and successful, so that only such answers are measured."""
        assert self._parser.get_status_code() == _OK, bytes(self._body[:600])
        assert _STOPPED in self._body, bytes(self._body[-600:])
        assert not stream or _DONE in self._body[-64:], bytes(self._body[-600:])

    def close(self) -> None:
        self._transport.close()


async def load(url: str, in_flight: int, count: int, *, stream: bool = False, key: str = "") -> Load:
    """Send ``count`` requests, with ``in_flight`` clients at the same time."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 0
    make_request = _request_factory(url, stream=stream, key=key)
    numbers = iter(range(count))
    total: list[float] = []
    first_byte: list[float] = []
    first_text: list[float] = []

    async def run_client() -> None:
        _, client = await asyncio.get_running_loop().create_connection(_Client, host, port)
        with closing(client):
            for number in numbers:
                request = make_request(number)
                began = perf_counter()
                await client.send(request)
                total.append(perf_counter() - began)
                first_byte.append(client.first_byte - began)
                first_text.append((client.first_text or perf_counter()) - began)
                client.check(stream=stream)

    began = perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(run_client())
    return Load(perf_counter() - began, total, first_byte, first_text)


def _request_factory(url: str, *, stream: bool, key: str) -> Callable[[int], bytes]:
    """Return a function that builds the request with a number; all are unique and equally long."""
    parts, run_id = urlsplit(url), secrets.token_hex(4)
    bearer = f"authorization: Bearer {key}\r\n" if key else ""

    def request(number: int) -> bytes:
        question = {"role": "user", "content": f"Tell me of fox {run_id}-{number:06}."}
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
    arguments = parser.parse_args()
    result = asyncio.run(
        load(arguments.url, arguments.in_flight, arguments.count, stream=arguments.stream, key=arguments.key)
    )
    sys.stdout.write(msgspec.json.encode(result).decode())


if __name__ == "__main__":
    _main()

"""Connection limits: large, slow and excess connections are refused, and all others are served."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from tests.api.in_process_server import PATIENCE, Hosted, hosted

from talaria.testing.model_server import ModelServer, Say

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
HEAD = b"GET /health HTTP/1.1\r\nhost: localhost\r\n"
HI = {"messages": [{"role": "user", "content": "hi"}]}


@asynccontextmanager
async def connected(host: Hosted, sent: bytes = b"") -> AsyncIterator[Streams]:
    """Open a connection and send some bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", host.port)
    try:
        writer.write(sent)
        await writer.drain()
        yield reader, writer
    finally:
        writer.close()


async def read_answer(reader: asyncio.StreamReader) -> bytes:
    """Return all bytes received until the connection is closed."""
    received = b""
    async with asyncio.timeout(PATIENCE):
        try:
            while piece := await reader.read(65536):
                received += piece
        except ConnectionResetError:
            return received
    return received


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(HEAD + b"x: ", id="one header"),
        pytest.param(b"GET /health?", id="address"),
        pytest.param(HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\nx: ", id="trailer"),
        pytest.param(HEAD + b"transfer-encoding: chunked\r\n\r\n1;", id="chunk extension"),
    ],
)
async def test_endless_request_head_is_refused(host: Hosted, start: bytes) -> None:
    async with connected(host, start) as (reader, writer):

        async def send() -> None:
            try:
                while True:
                    writer.write(b"y" * 65536)
                    await writer.drain()
            except ConnectionError:
                return

        async with asyncio.TaskGroup() as group:
            sending = group.create_task(send())
            received = await read_answer(reader)
            sending.cancel()
        assert received.count(b"HTTP/1.1 200 ") == start.count(
            b"chunked"
        )  # chunked requests are answered before their body
        assert received.count(b"HTTP/1.1 ") <= 1
    assert (await host.http.get("/health")).status_code == 200


async def test_endless_headers_are_refused_with_431(host: Hosted) -> None:
    for head in (b"x: " + b"y" * 70_000, b"x: y\r\n" * 20_000, b"x: " + b"y" * 200_000 + b"\r\n\r\n" + HEAD + b"\r\n"):
        async with connected(host, HEAD + head) as (reader, _):
            received = await read_answer(reader)
            assert received.startswith(b"HTTP/1.1 431 ")
            assert received.count(b"HTTP/1.1") == 1
            assert b'"code":"head_too_large"' in received
    async with connected(host, HEAD + b"x: " + b"y" * 60_000 + b"\r\nconnection: close\r\n\r\n") as (reader, _):
        assert (await read_answer(reader)).startswith(b"HTTP/1.1 200 ")


async def test_incomplete_request_head_times_out_with_408(tmp_path: Path, model: ModelServer) -> None:
    async with hosted(tmp_path, model, "[api]\nhead_seconds = 0.2\n") as host:
        for sent in (b"", b"G", HEAD):
            async with connected(host, sent) as (reader, _):
                assert (await read_answer(reader)).startswith(b"HTTP/1.1 408 ")
        async with connected(host, HEAD + b"\r\n" + HEAD) as (reader, writer):  # the second request is incomplete
            received = await read_answer_while_sending_slowly(reader, writer)
            assert (received.count(b"HTTP/1.1 200 "), received.count(b"HTTP/1.1 408 ")) == (1, 1)


async def read_answer_while_sending_slowly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Return all bytes received while header bytes are sent slowly."""

    async def send() -> None:
        try:
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.02)  # real time: a slow client
        except ConnectionError:
            return

    async with asyncio.TaskGroup() as group:
        sending = group.create_task(send())
        received = await read_answer(reader)
        sending.cancel()
    return received


async def test_connection_closes_without_the_unsent_body_after_the_answer(tmp_path: Path, model: ModelServer) -> None:
    async with hosted(tmp_path, model, "[api]\nhead_seconds = 0.2\n") as host:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10000000\r\n\r\n{"
        async with connected(host, head) as (reader, writer):
            assert (await read_answer_while_sending_slowly(reader, writer)).startswith(b"HTTP/1.1 401 ")


async def test_connection_stays_open_if_the_body_arrives_after_the_answer(host: Hosted) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n"
    async with connected(host, head) as (reader, writer):
        async with asyncio.timeout(PATIENCE):
            await reader.readuntil(b"invalid_api_key")
        writer.write(b"{}" + HEAD + b"connection: close\r\n\r\n")
        assert b"HTTP/1.1 200 " in await read_answer(reader)


async def test_oldest_idle_connection_is_closed_for_a_new_one(tmp_path: Path, model: ModelServer) -> None:
    async with hosted(tmp_path, model, "[api]\nconnections = 16\n") as host, AsyncExitStack() as stack:
        half = [await stack.enter_async_context(connected(host, HEAD)) for _ in range(100)]
        for _ in range(3):
            async with connected(host, HEAD + b"connection: close\r\n\r\n") as (reader, _):
                assert (await read_answer(reader)).startswith(b"HTTP/1.1 200 ")
        assert await read_answer(half[0][0]) == b""


async def test_connection_beyond_the_limit_is_refused_with_503(tmp_path: Path, model: ModelServer) -> None:
    may_answer = asyncio.Event()

    async def wait(_: object) -> Say:
        await may_answer.wait()
        return Say("done")

    model.answering(wait)
    async with hosted(tmp_path, model, "[api]\nconnections = 16\n") as host, asyncio.TaskGroup() as group:
        requests = [group.create_task(host.http.post("/v1/chat/completions", json=HI)) for _ in range(16)]
        await model.arrived(16)
        async with connected(host, HEAD + b"\r\n") as (reader, _):
            assert (await read_answer(reader)).startswith(b"HTTP/1.1 503 ")
        may_answer.set()
    assert {one.result().status_code for one in requests} == {200}


async def test_pipelined_requests_are_answered_in_order(host: Hosted) -> None:
    async with connected(host, (HEAD + b"\r\n") * 20 + HEAD + b"connection: close\r\n\r\n") as (reader, _):
        assert (await read_answer(reader)).count(b"HTTP/1.1 200 ") == 21


async def test_health_request_is_not_limited_and_its_body_not_read(tmp_path: Path, model: ModelServer) -> None:
    settings = "[api]\nrequests_at_once = 1\nrequests_per_minute = 6\n"
    async with hosted(tmp_path, model, settings) as host, AsyncExitStack() as stack:
        waiting = [
            await stack.enter_async_context(connected(host, HEAD + b"content-length: 99\r\n\r\n")) for _ in range(20)
        ]
        for reader, _ in waiting:
            async with asyncio.timeout(PATIENCE):
                assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        assert (await host.http.get("/health")).status_code == httpx.codes.OK

"""HTTP replies are parsed regardless of packet boundaries, and malformed ones are rejected."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.providers.raw_servers import OK, answering, fetch, read_request, serving
from tests.providers.scripted_providers import BRIEF, PATIENT, pool

from talaria.core.errors import MalformedReply, ProviderUnreachable
from talaria.http_client.connection import MAX_HEAD, READ_AHEAD, HttpReply, NotHttp
from talaria.testing.wait import LIMIT

CHUNKED = (
    b"HTTP/1.1 100 Continue\r\nX-Early: 1\r\n\r\n"
    b"HTTP/1.1 103 Early Hints\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n"
    b"X-Twice: a\r\nx-twice: b\r\n\r\n"
    b'4;name=value;other="quoted"\r\ndata\r\n3\r\n: 1\r\n2\r\n\n\n\r\n0\r\nX-Trailer: late\r\n\r\n'
)
BODY = b"data: 1\n\n"
SEEDS = range(12)


@given(st.lists(st.integers(0, len(CHUNKED)), max_size=30).map(sorted))
def test_reply_is_parsed_the_same_at_any_chunk_boundaries(cuts: list[int]) -> None:
    assert_is_complete(parse(CHUNKED, cuts))


def test_reply_is_parsed_byte_by_byte_and_in_any_two_pieces() -> None:
    assert_is_complete(parse(CHUNKED, list(range(len(CHUNKED)))))
    for cut in range(len(CHUNKED)):
        assert_is_complete(parse(CHUNKED, [cut]))


@pytest.mark.parametrize("seed", SEEDS)
async def test_reply_is_received_the_same_in_any_packets(seed: int) -> None:
    cuts = sorted(random.Random(seed).choices(range(len(CHUNKED)), k=seed * 8))
    talk = answering(CHUNKED, pieces=cuts)
    async with serving(talk) as port, pool() as http, http.get(f"http://127.0.0.1:{port}/", {}, PATIENT) as answer:
        assert (answer.status, answer.content_type) == (200, "text/event-stream")
        assert answer.headers["x-twice"] == "a, b"
        assert await answer.events() == [b"1"]
        assert await answer.events() is None


@pytest.mark.parametrize(
    "nonsense",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: five\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nmany\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
    ],
)
async def test_invalid_http_raises_malformed_reply(nonsense: bytes) -> None:
    async with serving(answering(nonsense)) as port, pool() as http:
        with pytest.raises(MalformedReply):
            await fetch(http, f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize(
    "endless",
    [
        b"HTTP/1.1 200 OK\r\n" + b"X-Filler: %s\r\n" % (b"x" * 999) * 2000,
        b"HTTP/1.1 200 OK\r\nX-Filler: " + b"x" * 2_000_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 50_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Trailer: " + b"x" * 2_000_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;" + b"x" * 2_000_000,
    ],
    ids=["headers", "a header", "informational replies", "a trailer", "a chunk extension"],
)
async def test_endless_headers_raise_malformed_reply(endless: bytes) -> None:
    async with serving(answering(endless)) as port, pool() as http:
        with pytest.raises(MalformedReply, match=str(MAX_HEAD)):
            await fetch(http, f"http://127.0.0.1:{port}/")


async def test_slow_headers_time_out() -> None:
    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        gone = asyncio.ensure_future(reader.read())
        while not gone.done():
            writer.write(b"x")
            await asyncio.wait([gone], timeout=0.01)
        await gone

    async with serving(trickle) as port, pool() as http:
        with pytest.raises(ProviderUnreachable, match="doesn't answer"):
            await fetch(http, f"http://127.0.0.1:{port}/", BRIEF)


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async with serving(answering(b"HTTP/1.1 200 OK\r\n\r\nall of it")) as port, pool() as http:
        assert await fetch(http, f"http://127.0.0.1:{port}/") == (200, b"all of it")


@pytest.mark.parametrize(
    "cut",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ],
)
async def test_truncated_reply_raises_an_error(cut: bytes) -> None:
    async with serving(answering(cut)) as port, pool() as http:
        with pytest.raises(ProviderUnreachable):
            await fetch(http, f"http://127.0.0.1:{port}/")


async def test_reply_is_read_if_the_server_closes_its_write_side() -> None:
    async def half(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(OK)
        writer.write_eof()
        await reader.read()

    async with serving(half) as port, pool() as http:
        for _ in range(2):
            assert await fetch(http, f"http://127.0.0.1:{port}/") == (200, b"hello")


async def test_redirect_is_returned_and_not_followed() -> None:
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://elsewhere.test/\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(moved)) as port, pool() as http:
        assert await fetch(http, f"http://127.0.0.1:{port}/") == (302, b"")


async def test_slow_reader_applies_backpressure_to_the_server() -> None:
    size = 64 * READ_AHEAD
    sent: list[int] = []

    async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        while sum(sent) < size:
            writer.write(b"x" * READ_AHEAD)
            await writer.drain()
            sent.append(READ_AHEAD)

    async with serving(pour) as port, pool() as http, http.get(f"http://127.0.0.1:{port}/", {}, PATIENT) as answer:
        await wait_until_idle(sent)
        assert sum(sent) < size
        assert len(await answer.body(size)) == size


async def test_cancelling_while_connecting_closes_the_connection() -> None:
    connected, disconnected = asyncio.Event(), asyncio.Event()

    async def never_shakes_hands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read()
        disconnected.set()

    async with serving(never_shakes_hands) as port, pool() as http, asyncio.timeout(LIMIT):
        async with asyncio.TaskGroup() as group:
            fetching = group.create_task(fetch(http, f"https://127.0.0.1:{port}/"))
            await connected.wait()
            fetching.cancel()
        assert fetching.cancelled()
        await disconnected.wait()


@pytest.mark.parametrize("url", ["ftp://model.test/", "http://", "http://model.test:port/", "http://a..b/"])
async def test_invalid_url_raises_provider_unreachable(url: str) -> None:
    async with pool() as http:
        with pytest.raises(ProviderUnreachable):
            await fetch(http, url)


async def test_header_value_with_a_line_break_is_refused() -> None:
    async with pool() as http:
        with pytest.raises(ProviderUnreachable, match="line break"):
            async with http.get("http://127.0.0.1:9/", {"X-Key": "secret\r\nX-More: 1"}, PATIENT):
                pass


def parse(data: bytes, cuts: list[int]) -> HttpReply:
    reply = HttpReply()
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        if start < end:
            reply.feed(data[start:end])
    return reply


def assert_is_complete(reply: HttpReply) -> None:
    assert (reply.status, reply.headers["x-twice"]) == (200, "a, b")
    assert not {"x-early", "x-trailer"} & set(reply.headers)
    assert reply.is_complete
    assert reply.keeps_alive
    assert reply.take() == BODY


def test_unrequested_second_reply_disables_keep_alive() -> None:
    reply = parse(OK + OK, [])
    assert reply.is_complete
    assert not reply.keeps_alive
    with pytest.raises(NotHttp):
        parse(b"?", [])


async def wait_until_idle(sent: list[int]) -> None:
    """Return once no more bytes were sent for 50 ms."""
    before = -1
    while before != len(sent):
        before = len(sent)
        await asyncio.sleep(0.05)  # real time: a connection that sends nothing more makes no event

"""The clients of the API benchmark count only complete answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from bench.api_load import Load, load

_ANSWER = b'{"choices": [{"message": {"content": "A fox."}, "finish_reason": "stop"}]}'
_STREAM = b'data: {"role": 1}\n\n', b'data: {"finish_reason":"stop"}\n\n', b"data: [DONE]\n\n"
_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def _sized(body: bytes, name: str = "content-length", status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\n{name}: {len(body)}\r\n\r\n".encode() + body


def _chunked(*pieces: bytes) -> bytes:
    return _CHUNKED + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (*pieces, b""))


class _Server:
    """A server that sends the same answer to every request, piece by piece, and then closes or waits for more."""

    def __init__(self, answer: bytes, *, hangs_up: bool = False) -> None:
        self._answer, self._hangs_up = answer, hangs_up
        self.heads: list[bytes] = []
        self.questions: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                body = await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
                self.heads.append(head)
                self.questions.append(msgspec.json.decode(body)["messages"][0]["content"])
                for offset in range(0, len(self._answer), 7):
                    writer.write(self._answer[offset : offset + 7])
                    await asyncio.sleep(0)
                if self._hangs_up:
                    return
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()


@asynccontextmanager
async def _listening(server_side: _Server) -> AsyncIterator[str]:
    async with await asyncio.start_server(server_side.serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat/completions"


async def _measure(server_side: _Server, *, in_flight: int = 1, stream: bool = False) -> Load:
    async with _listening(server_side) as url:
        return await load(url, in_flight, 6, stream=stream)


@pytest.mark.parametrize("name", ["content-length", "Content-Length", "CONTENT-LENGTH"])
async def test_answer_with_a_content_length_is_complete_in_any_letter_case(name: str) -> None:
    assert len((await _measure(_Server(_sized(_ANSWER, name)), in_flight=2)).total) == 6


async def test_chunked_answer_is_complete_with_its_last_chunk() -> None:
    assert len((await _measure(_Server(_chunked(_ANSWER[:20], _ANSWER[20:])), in_flight=2)).total) == 6


async def test_stream_times_are_ordered_first_byte_first_text_end() -> None:
    found = await _measure(_Server(_chunked(*_STREAM)), stream=True)
    assert len(found.total) == 6
    times = zip(found.first_byte, found.first_text, found.total, strict=True)
    assert all(0 < first_byte <= first_text <= total for first_byte, first_text, total in times)


@pytest.mark.parametrize(
    ("answer", "stream"),
    [
        (_sized(b'{"error": {}}', status="429 Too Many Requests"), False),
        (_sized(_ANSWER.replace(b"stop", b"error")), False),
        (_chunked(*_STREAM[:-1]), True),
    ],
    ids=["refused", "failed", "cut off"],
)
async def test_failed_answer_ends_the_measurement(answer: bytes, stream: bool) -> None:
    with pytest.RaisesGroup(AssertionError):
        await _measure(_Server(answer), stream=stream)


async def test_connection_closed_within_an_answer_ends_the_measurement() -> None:
    with pytest.RaisesGroup(ConnectionResetError):
        await _measure(_Server(_sized(_ANSWER)[:-5], hangs_up=True))


async def test_every_request_has_a_unique_question_and_the_key() -> None:
    server_side = _Server(_sized(_ANSWER))
    async with _listening(server_side) as url:
        for _ in range(2):
            await load(url, 2, 6, key="sesame")
    assert len(set(server_side.questions)) == 12
    assert all(b"\r\nauthorization: Bearer sesame\r\n" in head for head in server_side.heads)
    assert len({len(question) for question in server_side.questions}) == 1

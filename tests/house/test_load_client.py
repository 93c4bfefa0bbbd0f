"""The clients of the API benchmark count whole answers, and nothing else."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from bench.api_load import Load, load

_WORDS = b'{"choices": [{"message": {"content": "A fox."}, "finish_reason": "stop"}]}'
_STREAM = b'data: {"role": 1}\n\n', b'data: {"finish_reason":"stop"}\n\n', b"data: [DONE]\n\n"
_CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def _sized(body: bytes, name: str = "content-length", status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\n{name}: {len(body)}\r\n\r\n".encode() + body


def _chunked(*pieces: bytes) -> bytes:
    return _CHUNKED + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (*pieces, b""))


class _FarSide:
    """A server that says the same to everybody, piece by piece, and then hangs up or waits for more."""

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
                for place in range(0, len(self._answer), 7):
                    writer.write(self._answer[place : place + 7])
                    await asyncio.sleep(0)
                if self._hangs_up:
                    return
        except asyncio.IncompleteReadError:
            return
        finally:
            writer.close()


@asynccontextmanager
async def _listening(far: _FarSide) -> AsyncIterator[str]:
    async with await asyncio.start_server(far.serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat/completions"


async def _asked(far: _FarSide, *, in_flight: int = 1, stream: bool = False) -> Load:
    async with _listening(far) as url:
        return await load(url, in_flight, 6, stream=stream)


@pytest.mark.parametrize("name", ["content-length", "Content-Length", "CONTENT-LENGTH"])
async def test_an_answer_with_its_length_is_whole_in_any_letters(name: str) -> None:
    assert len((await _asked(_FarSide(_sized(_WORDS, name)), in_flight=2)).whole) == 6


async def test_an_answer_in_chunks_is_whole_with_the_last_of_them() -> None:
    assert len((await _asked(_FarSide(_chunked(_WORDS[:20], _WORDS[20:])), in_flight=2)).whole) == 6


async def test_a_stream_has_its_first_byte_before_its_first_words_and_these_before_its_end() -> None:
    found = await _asked(_FarSide(_chunked(*_STREAM)), stream=True)
    assert len(found.whole) == 6
    times = zip(found.first, found.words, found.whole, strict=True)
    assert all(0 < first <= words <= whole for first, words, whole in times)


@pytest.mark.parametrize(
    ("answer", "stream"),
    [
        (_sized(b'{"error": {}}', status="429 Too Many Requests"), False),
        (_sized(_WORDS.replace(b"stop", b"error")), False),
        (_chunked(*_STREAM[:-1]), True),
    ],
    ids=["refused", "failed", "cut off"],
)
async def test_what_is_no_answer_ends_the_measurement(answer: bytes, stream: bool) -> None:
    with pytest.RaisesGroup(AssertionError):
        await _asked(_FarSide(answer), stream=stream)


async def test_a_server_that_hangs_up_in_an_answer_ends_the_measurement() -> None:
    with pytest.RaisesGroup(ConnectionResetError):
        await _asked(_FarSide(_sized(_WORDS)[:-5], hangs_up=True))


async def test_no_question_is_asked_twice_and_the_key_is_shown_with_each() -> None:
    far = _FarSide(_sized(_WORDS))
    async with _listening(far) as url:
        for _ in range(2):
            await load(url, 2, 6, key="sesame")
    assert len(set(far.questions)) == 12
    assert all(b"\r\nauthorization: Bearer sesame\r\n" in head for head in far.heads)
    assert len({len(question) for question in far.questions}) == 1

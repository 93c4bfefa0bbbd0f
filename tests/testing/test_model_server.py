"""Features of the scripted model server beyond the protocols: scripts, recorded calls and faults."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest

from talaria.testing.model_server import (
    Answer,
    Ask,
    Collapse,
    CutOff,
    Fail,
    Garbage,
    Instant,
    ModelServer,
    Received,
    Say,
    Silence,
    WrongType,
)

PROTOCOLS = ("chat", "responses", "anthropic")
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "anthropic": "/v1/messages"}
HEADERS = {"Authorization": "Bearer sk-test", "x-api-key": "sk-test", "anthropic-version": "2023-06-01"}
FIVE_WORDS = Say("one two three four five")


class Caller:
    """A bare client, for one protocol after another."""

    def __init__(self, http: aiohttp.ClientSession, server: ModelServer) -> None:
        self.http = http
        self.server = server

    def post(self, protocol: str, *, stream: bool = False, **fields: object) -> Any:
        turns = [{"role": "user", "content": "hi"}]
        body: dict[str, object] = {"model": "test-model", "stream": stream, "max_tokens": 99}
        body["input" if protocol == "responses" else "messages"] = turns
        return self.http.post(self.server.url + PATHS[protocol], json=body | fields, headers=HEADERS)

    async def ask(self, protocol: str, *, stream: bool = False, **fields: object) -> tuple[int, bytes]:
        async with self.post(protocol, stream=stream, **fields) as response:
            return response.status, await response.read()

    async def text(self, protocol: str = "chat", *, temperature: float = 0) -> str:
        _, body = await self.ask(protocol, temperature=temperature)
        message: str = msgspec.json.decode(body)["choices"][0]["message"]["content"]
        return message


@pytest.fixture
async def caller(server: ModelServer) -> AsyncIterator[Caller]:
    async with aiohttp.ClientSession() as http:
        yield Caller(http, server)


def count_words(body: bytes) -> int:
    return sum(word in body for word in (b'"one"', b'" two"', b'" three"', b'" four"', b'" five"'))


async def read_until_it_breaks(response: aiohttp.ClientResponse) -> bytes:
    got = b""
    try:
        async for piece in response.content.iter_any():
            got += piece
    except aiohttp.ClientPayloadError:
        return got
    raise AssertionError("the stream came to a regular end")


async def test_scripted_answers_precede_the_default_answer(server: ModelServer, caller: Caller) -> None:
    server.script(Say("first"), Say("second"))
    assert [await caller.text() for _ in range(3)] == ["first", "second", "ok"]
    server.otherwise(Say("as usual"))
    assert [await caller.text() for _ in range(2)] == ["as usual", "as usual"]
    server.script(Say("third"))
    assert [await caller.text() for _ in range(2)] == ["third", "as usual"]


async def test_an_answer_can_be_computed_from_the_request(server: ModelServer, caller: Caller) -> None:
    server.answering(lambda received: Say(received.question.upper()))
    assert await caller.text() == "HI"

    async def slowly(received: Received) -> Answer:
        await asyncio.sleep(0)
        return Say(f"{received.protocol} {received.path}")

    server.answering(slowly)
    assert await caller.text() == "chat /v1/chat/completions"


async def test_stream_waits_for_the_hold_event(server: ModelServer, caller: Caller) -> None:
    release = asyncio.Event()
    server.script(Say("one two three", hold=(2, release)))
    got = b""
    async with caller.post("chat", stream=True) as response:
        while b" two" not in got:
            got += await response.content.readany()
        assert b" three" not in got
        release.set()
        got += await response.read()
    assert b" three" in got


async def test_matching_calls_use_no_scripted_answer(server: ModelServer, caller: Caller) -> None:
    server.script(Say("first"), Say("second"))
    server.answer_when(lambda received: received.json["temperature"] > 0, Say("warm"))
    server.answer_when(lambda received: received.json["temperature"] > 0.5, Say("hot"))
    assert [await caller.text(temperature=heat) for heat in (0, 0.4, 0.9, 0)] == ["first", "warm", "hot", "second"]
    assert [received.json["temperature"] for received in server.received] == [0, 0]
    assert [received.json["temperature"] for received in server.received_apart] == [0.4, 0.9]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_every_call_is_recorded_unchanged(server: ModelServer, caller: Caller, protocol: str) -> None:
    await caller.ask(protocol, temperature=0.5)
    (received,) = server.received
    assert (received.protocol, received.path) == (protocol, PATHS[protocol])
    assert received.headers["AUTHORIZATION"] == "Bearer sk-test"
    assert received.json == msgspec.json.decode(received.body)
    assert received.json["temperature"] == 0.5
    assert received.question == "hi"


@pytest.mark.parametrize(
    ("content", "question"),
    [
        ([{"type": "text", "text": "look"}, {"type": "image_url"}, {"type": "text", "text": "here"}], "look\nhere"),
        ([{"type": "input_text", "text": "look"}], "look"),
        ([{"type": "tool_result", "tool_use_id": "x", "content": "done"}], "hi"),
        ("", "hi"),
    ],
)
def test_question_is_the_last_text_of_the_user(content: object, question: str) -> None:
    turns = [{"role": "user", "content": "hi"}, {"role": "user", "content": content}, {"role": "tool", "content": "x"}]
    assert Received("chat", "", {}, msgspec.json.encode({"messages": turns})).question == question
    assert Received("responses", "", {}, msgspec.json.encode({"input": turns})).question == question


def test_plain_input_string_is_the_question() -> None:
    assert Received("responses", "", {}, b'{"input": "hi there"}').question == "hi there"


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("chunks", "pieces"), [(None, 5), (1, 1), (3, 3), (1000, len("one two three four five"))])
async def test_reply_is_streamed_in_the_requested_number_of_pieces(
    server: ModelServer, caller: Caller, protocol: str, chunks: int | None, pieces: int
) -> None:
    server.script(Say("one two three four five", chunks=chunks))
    _, body = await caller.ask(protocol, stream=True)
    markers = {"chat": b'"delta":{"content":"', "responses": b'.delta","delta"', "anthropic": b'"text_delta"'}
    assert body.count(markers[protocol]) == pieces


async def test_streamed_pieces_are_separated_by_the_pause(server: ModelServer, caller: Caller) -> None:
    server.script(Say("one two three", pause=0.05))
    started = asyncio.get_running_loop().time()
    await caller.ask("chat", stream=True)
    assert asyncio.get_running_loop().time() - started >= 0.1


@pytest.mark.parametrize("stream", [False, True])
async def test_invalid_tool_arguments_are_sent_unchanged(server: ModelServer, caller: Caller, stream: bool) -> None:
    server.otherwise(Say(calls=[Ask("read_file", '{"path": ')], chunks=1))
    for protocol in PROTOCOLS:
        _, body = await caller.ask(protocol, stream=stream)
        assert b'{\\"path\\"' in body


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_cut_stream_ends_after_the_given_number_of_pieces(
    server: ModelServer, caller: Caller, protocol: str
) -> None:
    server.script(CutOff(FIVE_WORDS, after=3))
    async with caller.post(protocol, stream=True) as response:
        assert count_words(await read_until_it_breaks(response)) == 3


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_cut_stream_lacks_its_final_events(server: ModelServer, caller: Caller, protocol: str) -> None:
    server.script(CutOff(FIVE_WORDS, after=99))
    async with caller.post(protocol, stream=True) as response:
        got = await read_until_it_breaks(response)
    assert count_words(got) == 5
    assert not any(end in got for end in (b"[DONE]", b"output_text.done", b"content_block_stop"))


async def test_cut_plain_reply_has_an_incomplete_body(server: ModelServer, caller: Caller) -> None:
    server.script(CutOff(FIVE_WORDS))
    async with caller.post("chat") as response:
        assert await read_until_it_breaks(response)


async def test_reply_cut_at_the_start_closes_the_connection(server: ModelServer, caller: Caller) -> None:
    server.script(CutOff(after=0))
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await caller.ask("chat", stream=True)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_silent_stream_stays_open_until_the_client_disconnects(
    server: ModelServer, caller: Caller, protocol: str
) -> None:
    server.script(Silence(FIVE_WORDS, after=3))
    async with caller.post(protocol, stream=True) as response:
        got = b""
        while count_words(got) < 3:
            got += await response.content.readany()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await response.content.readany()
        assert server.open_streams == 1
        response.close()
    await server.gone(1)
    assert server.open_streams == 0


@pytest.mark.parametrize(("after", "stream"), [(0, True), (0, False), (3, False)])
async def test_disconnect_of_a_waiting_client_is_noticed(
    server: ModelServer, caller: Caller, after: int, stream: bool
) -> None:
    server.script(Silence(after=after), Silence(after=after))
    for clients in (1, 2):
        async with asyncio.TaskGroup() as group:
            asking = group.create_task(caller.ask("chat", stream=stream))
            await server.arrived(clients)
            asking.cancel()
        await server.gone(clients)
    assert server.open_streams == 0


async def test_disconnect_from_a_slow_stream_is_noticed(server: ModelServer, caller: Caller) -> None:
    server.script(Say("one two three", pause=60))
    async with caller.post("chat", stream=True) as response:
        await response.content.readany()
        response.close()
    await server.gone()
    assert server.open_streams == 0


async def test_complete_and_cut_replies_do_not_count_as_disconnects(server: ModelServer, caller: Caller) -> None:
    server.script(Say("fine"), CutOff(after=0), CutOff(after=2), Fail(500))
    await caller.ask("chat")
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await caller.ask("chat")
    with pytest.raises(aiohttp.ClientPayloadError):
        await caller.ask("chat", stream=True)
    await caller.ask("chat")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await server.gone(1)
    assert server.open_streams == 0


async def test_server_stops_at_once_with_an_open_stream() -> None:
    async with aiohttp.ClientSession() as http:
        async with ModelServer() as server:
            server.script(Silence(after=1))
            response = await Caller(http, server).post("chat", stream=True)
            started = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - started < 2
        response.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_garbage_answer_is_invalid_json(server: ModelServer, caller: Caller, protocol: str) -> None:
    server.script(Garbage(after=3, say=FIVE_WORDS), Garbage())
    status, body = await caller.ask(protocol, stream=True)
    data = [line.removeprefix(b"data: ") for line in body.splitlines() if line.startswith(b"data: ")]
    for line in data[:-1]:
        msgspec.json.decode(line)
    assert (status, count_words(b"".join(data[:-1]))) == (200, 3)
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(data[-1])
    status, body = await caller.ask(protocol)
    assert status == 200
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(body)


@pytest.mark.parametrize("stream", [False, True])
async def test_wrong_type_answer_is_a_web_page(server: ModelServer, caller: Caller, stream: bool) -> None:
    server.script(WrongType())
    async with caller.post("anthropic", stream=stream) as response:
        assert (response.status, response.content_type) == (200, "text/html")
        assert (await response.text()).startswith("<!doctype html>")


async def test_collapse_of_a_plain_reply_is_an_error_status(server: ModelServer, caller: Caller) -> None:
    server.script(Collapse(fail=Fail(502)))
    status, _ = await caller.ask("responses")
    assert status == 502


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_instant_reply_is_the_same_bytes_each_time(
    server: ModelServer, caller: Caller, protocol: str, stream: bool
) -> None:
    server.otherwise(Instant("one two three four five", chunks=5))
    first, second = [await caller.ask(protocol, stream=stream) for _ in range(2)]
    assert first == second
    assert first[0] == 200
    assert (b"data: " in first[1]) is stream

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from time import process_time

import msgspec
import pytest
from msgspec import Raw

from talaria.contracts.provider import ModelReply, ModelRequest, ModelText
from talaria.core.errors import ModelRefused, ModelUnknown
from talaria.core.messages import Message, Role, Text, ToolCall, ToolResult
from talaria.providers.embedded.adapter import EmbeddedProvider
from talaria.providers.embedded.outgoing import (
    CONTEXT_TOKENS,
    SYSTEM,
    SYSTEM_TOKENS,
    cut_history,
    encode,
    estimate,
    shorten,
)
from talaria.providers.embedded.weights import MODEL, check_weights, find_weights, is_installed
from talaria.testing.wait import LIMIT

NOW = datetime(2026, 11, 15, tzinfo=UTC)
CITY = b'{"type":"object","properties":{"city":{"type":"string","maxLength":12}},"required":["city"]}'

needs_weights = pytest.mark.skipif(
    not is_installed(), reason="The embedded model is not installed: `talaria model install-embedded`."
)


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedProvider]:
    provider = EmbeddedProvider(tmp_path_factory.mktemp("embedded") / "checked")
    yield provider
    asyncio.run(provider.close())


def message(role: Role, text: str) -> Message:
    return Message(role=role, parts=(Text(text),), at=NOW)


def request(text: str, *, tokens: int = 12, schema: bytes = b"", stream: bool = True) -> ModelRequest:
    return ModelRequest(
        model=MODEL,
        messages=(message("user", text),),
        max_output_tokens=tokens,
        temperature=0,
        output_schema=Raw(schema) if schema else None,
        stream=stream,
    )


@pytest.mark.slow
@needs_weights
async def test_streamed_pieces_add_up_to_the_final_reply(provider: EmbeddedProvider) -> None:
    *pieces, reply = [event async for event in provider.reply(request("What is the capital of France?"))]
    assert isinstance(reply, ModelReply)
    assert len(pieces) > 2
    assert "".join(piece.text for piece in pieces if isinstance(piece, ModelText)) == reply.message.text
    assert "Paris" in reply.message.text
    assert reply.message.model == MODEL
    assert 0 < reply.usage.output_tokens <= 12
    assert reply.usage.input_tokens < SYSTEM_TOKENS


@pytest.mark.slow
@needs_weights
async def test_reply_cut_at_the_token_limit_has_the_stop_reason_length(provider: EmbeddedProvider) -> None:
    *_, reply = [event async for event in provider.reply(request("Tell me a long story.", tokens=3))]
    assert isinstance(reply, ModelReply)
    assert (reply.stop, reply.usage.output_tokens) == ("length", 3)


@pytest.mark.slow
@needs_weights
async def test_structured_output_follows_its_schema(provider: EmbeddedProvider) -> None:
    asked = request("Name a city.", tokens=40, schema=CITY, stream=False)
    (reply,) = [event async for event in provider.reply(asked)]
    assert isinstance(reply, ModelReply)
    assert set(msgspec.json.decode(reply.message.text)) == {"city"}


@needs_weights
async def test_invalid_output_schema_is_refused(provider: EmbeddedProvider) -> None:
    with pytest.raises(ModelRefused):
        _ = [event async for event in provider.reply(request("Hi", schema=b'{"type":"nonsense"}'))]


@needs_weights
async def test_closing_a_reply_stops_the_model(provider: EmbeddedProvider) -> None:
    async with aclosing(provider.reply(request("Tell me a very long story.", tokens=900))) as events:
        async for _ in events:
            break
    await answers_at_once(provider)


@pytest.mark.slow
@needs_weights
async def test_cancelling_stops_the_model_while_it_reads_the_prompt(provider: EmbeddedProvider) -> None:
    started = asyncio.Event()

    async def listen() -> None:
        started.set()
        _ = [event async for event in provider.reply(request("a strange word " * 400, tokens=900))]

    async with asyncio.TaskGroup() as group:
        task = group.create_task(listen())
        await started.wait()
        task.cancel()
    await answers_at_once(provider)


async def answers_at_once(provider: EmbeddedProvider) -> None:
    """Check that the one thread is free: the CPU time of the reply that was stopped would be far longer."""
    before = process_time()
    async with asyncio.timeout(LIMIT):
        assert [event async for event in provider.reply(request("Hi", tokens=2))]
    assert process_time() - before < 5


@needs_weights
async def test_event_loop_stays_responsive_while_the_model_generates(provider: EmbeddedProvider) -> None:
    loop = asyncio.get_running_loop()
    ticks = 0
    async with asyncio.TaskGroup() as group:
        task = group.create_task(anext(provider.reply(request("Count to ten.", tokens=20))))
        while not task.done():
            before = loop.time()
            await asyncio.sleep(0)
            ticks += loop.time() - before < 1
    assert ticks > 100


@needs_weights
def test_valid_weights_are_checked_once(tmp_path: Path) -> None:
    weights = find_weights()
    assert weights is not None
    check_weights(weights, tmp_path / "checked")
    remembered = (tmp_path / "checked").read_text()
    assert str(weights) in remembered
    check_weights(weights, tmp_path / "checked")
    assert (tmp_path / "checked").read_text() == remembered
    check_weights(weights, tmp_path / "untouched" / "checked")
    assert not (tmp_path / "untouched").exists()


def test_damaged_weights_are_refused_with_the_install_command(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF of another kind")
    with pytest.raises(ModelUnknown, match="install-embedded"):
        check_weights(tmp_path / "model.gguf", tmp_path / "checked")
    assert not (tmp_path / "checked").exists()


def test_long_system_prompt_is_replaced_by_the_built_in_one() -> None:
    assert estimate(SYSTEM) <= SYSTEM_TOKENS
    long = msgspec.structs.replace(request("Hi"), system="Many rules. " * 200)
    short = msgspec.structs.replace(request("Hi"), system="Write a title.")
    assert _system(long) == SYSTEM
    assert _system(short) == "Write a title."


def test_tool_calls_and_results_are_removed_from_the_history() -> None:
    call, result = ToolCall("1", "read_file", "{}"), ToolResult("1", "secret")
    history = (
        message("user", "Read it."),
        Message(role="assistant", parts=(call,), at=NOW),
        Message(role="tool", parts=(result,), at=NOW),
        message("assistant", "Done."),
        message("user", "Thanks."),
    )
    assert [one.content for one in cut_history(history)] == ["Read it.", "Done.", "Thanks."]


def test_a_long_history_is_cut_from_the_front_and_in_steps() -> None:
    history = [message("user" if turn % 2 else "assistant", f"{turn} " + "some words " * 20) for turn in range(200)]
    starts = [cut_history(history[:length])[0].content.split()[0] for length in range(1, 201)]
    assert starts[0] == "0"
    assert int(starts[-1]) > 150
    assert len(set(starts)) < 40
    for length in range(1, 201):
        assert sum(estimate(one.content) for one in cut_history(history[:length])) < CONTEXT_TOKENS - 900


@pytest.mark.parametrize("text", ["word " * 9000, "语言" * 4000, "x" * 50_000, "🙂" * 3000])
def test_message_over_the_limit_is_shortened_in_the_middle(text: str) -> None:
    short = shorten(text, 1024)
    assert estimate(short) <= 1024
    assert short[:10] == text[:10]
    assert short[-10:] == text[-10:]


def _system(asked: ModelRequest) -> str:
    body = msgspec.json.decode(encode(asked))
    return str(body["messages"][0]["content"])

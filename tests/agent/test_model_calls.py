"""A chain of models answers if any of them can, without repeated text."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.providers.random_histories import request
from tests.providers.scripted_providers import CONNECTORS, PATIENT, pool

from talaria.agent.model_calls import (
    CONTINUE,
    REACTIONS,
    CallEvent,
    ModelAnswer,
    ModelCalls,
    ModelChoice,
    ReplySeam,
    RetryPolicy,
)
from talaria.contracts.provider import ModelRequest, ModelText, Provider
from talaria.core.errors import (
    ContextTooLong,
    ModelRefused,
    ProviderBusy,
    ProviderError,
    ProviderOverloaded,
    ProviderUnreachable,
)
from talaria.core.events import Noticed
from talaria.core.messages import Reasoning, Text, ToolCall
from talaria.http_client.connection import Timeouts
from talaria.testing.model_server import (
    Answer,
    Ask,
    Collapse,
    CutOff,
    Fail,
    Garbage,
    ModelServer,
    Say,
    Silence,
    bad_key,
    context_too_long,
    model_unknown,
    no_credit,
    overloaded,
    refused,
)
from talaria.testing.wait import LIMIT

HASTY = RetryPolicy(first_wait=timedelta(milliseconds=2), longest_wait=timedelta(milliseconds=20))
HALF = Say("These are some words. And this is the end.")


@pytest.fixture(params=[*CONNECTORS.values()], ids=[*CONNECTORS])
async def provider(request: pytest.FixtureRequest, server: ModelServer) -> AsyncIterator[Provider]:
    async with pool() as http:
        yield request.param(server.url, http, PATIENT)


def chain(provider: Provider, *models: str, patience: RetryPolicy = HASTY) -> ModelCalls:
    return ModelCalls([ModelChoice(provider, model) for model in models or ("first",)], patience, lambda: 1.0)


async def ask(calls: ModelCalls, model_request: ModelRequest | None = None) -> tuple[str, list[str], ModelAnswer]:
    """Return the streamed text, the notices, and the final answer."""
    events = [event async for event in calls.reply(model_request or request())]
    end = events.pop()
    assert isinstance(end, ModelAnswer)
    return text_of(events), [event.text for event in events if isinstance(event, Noticed)], end


def text_of(events: Sequence[CallEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ModelText))


def models_called(server: ModelServer) -> list[str]:
    return [received.json["model"] for received in server.received]


@pytest.mark.parametrize("fault", [overloaded(), Fail(429), Fail(500), CutOff(after=0), Garbage()])
async def test_temporary_fault_is_retried_without_a_notice(
    provider: Provider, server: ModelServer, fault: Answer
) -> None:
    server.script(fault, Say("Here I am."))
    text, notices, end = await ask(chain(provider))
    assert (text, notices) == ("Here I am.", [])
    assert end.reply.message.text == "Here I am."
    assert server.received[0].body == server.received[1].body


@pytest.mark.parametrize("fault", [CutOff(HALF), Garbage(3, HALF), Collapse(HALF)])
async def test_a_broken_reply_continues_where_it_stopped(
    provider: Provider, server: ModelServer, fault: Answer
) -> None:
    server.script(fault, Say(" words. And this is the end."))
    text, _, end = await ask(chain(provider))
    assert text == HALF.text
    assert end.reply.message.parts == (Text(HALF.text),)
    body = server.received[-1].body.decode()
    assert "These are some" in body
    assert CONTINUE in body


async def test_reply_of_a_silent_model_is_continued_by_the_next_one(provider: Provider, server: ModelServer) -> None:
    server.script(Silence(HALF), Say(" words. And this is the end."))
    patience = RetryPolicy(attempts=1)
    async with pool() as http:
        impatient = CONNECTORS["chat"](server.url, http, Timeouts(silence=timedelta(seconds=0.5)))
        choices = [ModelChoice(impatient, "first"), ModelChoice(provider, "second")]
        text, _, end = await ask(ModelCalls(choices, patience))
    assert text == end.reply.message.text == HALF.text
    assert CONTINUE in server.received[-1].body.decode()


async def test_text_is_not_repeated_if_the_model_restarts_its_reply(provider: Provider, server: ModelServer) -> None:
    server.script(CutOff(HALF, after=4), Say(HALF.text))
    text, _, end = await ask(chain(provider))
    assert text == end.reply.message.text == HALF.text


async def test_reply_that_breaks_twice_is_completed(provider: Provider, server: ModelServer) -> None:
    server.script(CutOff(Say("one two three"), after=1), CutOff(Say(" two three"), after=1), Say(" three"))
    text, _, end = await ask(chain(provider))
    assert text == end.reply.message.text == "one two three"


async def test_partial_tool_call_of_a_broken_reply_is_dropped(provider: Provider, server: ModelServer) -> None:
    whole = Say("Let me look.", reasoning="Hm.", calls=[Ask("read_file", {"path": "a" * 100}, id="call_1")])
    server.script(CutOff(whole, after=8), Say(reasoning="Hm.", calls=[Ask("read_file", {"path": "b"}, id="call_2")]))
    text, _, end = await ask(chain(provider))
    assert text == "Let me look."
    thought, spoken, call = end.reply.message.parts
    assert isinstance(thought, Reasoning)
    assert (spoken, call) == (Text("Let me look."), ToolCall("call_2", "read_file", '{"path":"b"}'))
    assert end.reply.stop == "tool_calls"


@pytest.mark.parametrize("fault", [bad_key(), no_credit(), model_unknown()])
async def test_permanent_fault_falls_back_to_the_next_model(
    provider: Provider, server: ModelServer, fault: Answer
) -> None:
    server.script(fault, Say("Me instead."))
    text, notices, end = await ask(chain(provider, "first", "second"))
    assert text == "Me instead."
    assert len(notices) == 1
    assert "second" in notices[0]
    assert end.choice.model == "second"
    assert models_called(server) == ["first", "second"]


async def test_model_that_stays_down_falls_back_to_the_next_model(provider: Provider, server: ModelServer) -> None:
    server.script(CutOff(HALF), overloaded(), overloaded(), Say(" words. And this is the end."))
    text, notices, end = await ask(chain(provider, "first", "second"))
    assert text == end.reply.message.text == HALF.text
    assert len(notices) == 1
    assert models_called(server) == ["first", "first", "first", "second"]


@pytest.mark.parametrize(("fault", "error"), [(context_too_long(), ContextTooLong), (refused(), ModelRefused)])
async def test_error_of_the_request_is_raised_without_retry_or_fallback(
    provider: Provider, server: ModelServer, fault: Answer, error: type[ProviderError]
) -> None:
    server.script(fault)
    with pytest.raises(error):
        await ask(chain(provider, "first", "second"))
    assert models_called(server) == ["first"]


async def test_each_model_is_called_at_most_three_times(provider: Provider, server: ModelServer) -> None:
    server.otherwise(overloaded())
    with pytest.raises(ProviderOverloaded):
        await ask(chain(provider, "first", "second"))
    assert models_called(server) == ["first"] * 3 + ["second"] * 3


async def test_a_requested_wait_is_observed_and_reported(provider: Provider, server: ModelServer) -> None:
    patience = RetryPolicy(first_wait=timedelta(0), silent_wait=timedelta(milliseconds=10))
    server.script(Fail(429, retry_after=0.03), Say("Now."))
    before = asyncio.get_running_loop().time()
    _, notices, _ = await ask(chain(provider, patience=patience))
    assert asyncio.get_running_loop().time() - before >= 0.03
    assert len(notices) == 1


async def test_wait_longer_than_the_policy_allows_falls_back_or_fails(provider: Provider, server: ModelServer) -> None:
    server.script(Fail(429, retry_after=3600), Say("Me instead."), Fail(429, retry_after=3600))
    _, _, end = await ask(chain(provider, "first", "second"))
    assert end.choice.model == "second"
    with pytest.raises(ProviderBusy) as busy:
        await ask(chain(provider))
    assert busy.value.retry_after == timedelta(hours=1)


async def test_a_call_ends_at_its_deadline(server: ModelServer) -> None:
    patience = RetryPolicy(deadline=timedelta(milliseconds=40))
    server.otherwise(Silence(after=0))
    async with pool() as http:
        provider = CONNECTORS["chat"](server.url, http, PATIENT)
        with pytest.raises(ProviderUnreachable):
            await ask(chain(provider, "first", "second", patience=patience))
    assert "second" not in models_called(server)


async def test_broken_structured_output_is_requested_again_from_the_start(
    provider: Provider, server: ModelServer
) -> None:
    server.script(CutOff(Say('{"title": "Half a title"}'), after=2), Say('{"title":"All"}'))
    text, _, end = await ask(chain(provider), request(output_schema=Raw(b'{"type":"object"}')))
    assert (text, end.reply.message.text) == ("", '{"title":"All"}')
    assert CONTINUE not in server.received[-1].body.decode()


async def test_closing_a_call_closes_the_connection(provider: Provider, server: ModelServer) -> None:
    server.script(Silence(after=1))
    async with aclosing(chain(provider).reply(request())) as events:
        await anext(events)
    async with asyncio.timeout(LIMIT):
        await server.gone(1)


async def test_cancelling_a_call_closes_the_connection_without_fallback(
    provider: Provider, server: ModelServer
) -> None:
    server.otherwise(Silence(after=0))
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        call = group.create_task(ask(chain(provider, "first", "second")))
        await server.arrived(1)
        call.cancel()
        await server.gone(1)
    assert call.cancelled()
    assert models_called(server) == ["first"]


def test_every_error_of_a_provider_has_a_reaction() -> None:
    known = [kind for kind in ProviderError.__subclasses__() if kind.__module__ == ProviderError.__module__]
    assert set(known) <= set(REACTIONS)  # errors of single providers have the default reaction


def test_chain_without_models_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ModelCalls([])


@given(st.text(alphabet="ab ", min_size=1), st.text(alphabet="ab "), st.integers(1, 9))
def test_seam_output_does_not_depend_on_the_chunk_size(before: str, after: str, step: int) -> None:
    whole, cut = ReplySeam(before), ReplySeam(before)
    once = whole.add(after) + whole.take_rest()
    again = "".join(cut.add(after[start : start + step]) for start in range(0, len(after), step)) + cut.take_rest()
    assert once == again
    assert after.endswith(once)


@pytest.mark.parametrize("pieces", [1, 3, 100])
def test_seam_removes_a_repeat_for_any_chunk_size(pieces: int) -> None:
    before = "The quick brown fox jumps over the lazy"
    seam = ReplySeam(before)
    again = f"{before} dog, twice."
    step = max(len(again) // pieces, 1)
    added = "".join(seam.add(again[start : start + step]) for start in range(0, len(again), step)) + seam.take_rest()
    assert added == " dog, twice."


def test_short_overlap_is_not_removed_as_a_repeat() -> None:
    seam = ReplySeam("I came, I saw, I")
    assert seam.add(" came") + seam.add(" back again and again") + seam.take_rest() == " came back again and again"

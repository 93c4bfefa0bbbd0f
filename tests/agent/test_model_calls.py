"""A chain of models answers if any of them can, and says nothing twice."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from tests.providers.random_histories import request
from tests.providers.scripted_providers import PATIENT, SPEAKERS, pool

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
NO_SILENCE = Timeouts(silence=timedelta(seconds=0.5))


@pytest.fixture(params=[*SPEAKERS.values()], ids=[*SPEAKERS])
async def provider(request: pytest.FixtureRequest, server: ModelServer) -> AsyncIterator[Provider]:
    async with pool() as http:
        yield request.param(server.url, http, NO_SILENCE)


def chain(provider: Provider, *models: str, patience: RetryPolicy = HASTY) -> ModelCalls:
    return ModelCalls([ModelChoice(provider, model) for model in models or ("first",)], patience, lambda: 1.0)


async def ask(calls: ModelCalls, asked: ModelRequest | None = None) -> tuple[str, list[str], ModelAnswer]:
    """Return the words passed on, the notices, and the end."""
    events = [event async for event in calls.reply(asked or request())]
    end = events.pop()
    assert isinstance(end, ModelAnswer)
    return said(events), [event.text for event in events if isinstance(event, Noticed)], end


def said(events: Sequence[CallEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ModelText))


def models_asked(server: ModelServer) -> list[str]:
    return [received.json["model"] for received in server.received]


@pytest.mark.parametrize("fault", [overloaded(), Fail(429), Fail(500), CutOff(after=0), Garbage()])
async def test_a_passing_fault_is_not_noticed(provider: Provider, server: ModelServer, fault: Answer) -> None:
    server.script(fault, Say("Here I am."))
    text, notices, end = await ask(chain(provider))
    assert (text, notices) == ("Here I am.", [])
    assert end.reply.message.text == "Here I am."
    assert server.received[0].body == server.received[1].body


@pytest.mark.parametrize("fault", [CutOff(HALF), Garbage(3, HALF), Silence(HALF), Collapse(HALF)])
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


async def test_a_model_that_starts_all_over_is_not_heard_twice(provider: Provider, server: ModelServer) -> None:
    server.script(CutOff(HALF, after=4), Say(HALF.text))
    text, _, end = await ask(chain(provider))
    assert text == end.reply.message.text == HALF.text


async def test_a_reply_may_break_more_than_once(provider: Provider, server: ModelServer) -> None:
    server.script(CutOff(Say("one two three"), after=1), CutOff(Say(" two three"), after=1), Say(" three"))
    text, _, end = await ask(chain(provider))
    assert text == end.reply.message.text == "one two three"


async def test_half_a_tool_call_is_forgotten(provider: Provider, server: ModelServer) -> None:
    whole = Say("Let me look.", reasoning="Hm.", calls=[Ask("read_file", {"path": "a" * 100}, id="call_1")])
    server.script(CutOff(whole, after=8), Say(reasoning="Hm.", calls=[Ask("read_file", {"path": "b"}, id="call_2")]))
    text, _, end = await ask(chain(provider))
    assert text == "Let me look."
    thought, spoken, call = end.reply.message.parts
    assert isinstance(thought, Reasoning)
    assert (spoken, call) == (Text("Let me look."), ToolCall("call_2", "read_file", '{"path":"b"}'))
    assert end.reply.stop == "tool_calls"


@pytest.mark.parametrize("fault", [bad_key(), no_credit(), model_unknown()])
async def test_what_waiting_will_not_repair_goes_to_the_next_model(
    provider: Provider, server: ModelServer, fault: Answer
) -> None:
    server.script(fault, Say("Me instead."))
    text, notices, end = await ask(chain(provider, "first", "second"))
    assert text == "Me instead."
    assert len(notices) == 1
    assert "second" in notices[0]
    assert end.choice.model == "second"
    assert models_asked(server) == ["first", "second"]


async def test_a_model_that_stays_down_is_left_for_the_next(provider: Provider, server: ModelServer) -> None:
    server.script(CutOff(HALF), overloaded(), overloaded(), Say(" words. And this is the end."))
    text, notices, end = await ask(chain(provider, "first", "second"))
    assert text == end.reply.message.text == HALF.text
    assert len(notices) == 1
    assert models_asked(server) == ["first", "first", "first", "second"]


@pytest.mark.parametrize(("fault", "error"), [(context_too_long(), ContextTooLong), (refused(), ModelRefused)])
async def test_what_is_wrong_with_the_request_is_reported_at_once(
    provider: Provider, server: ModelServer, fault: Answer, error: type[ProviderError]
) -> None:
    server.script(fault)
    with pytest.raises(error):
        await ask(chain(provider, "first", "second"))
    assert models_asked(server) == ["first"]


async def test_attempts_are_bounded(provider: Provider, server: ModelServer) -> None:
    server.otherwise(overloaded())
    with pytest.raises(ProviderOverloaded):
        await ask(chain(provider, "first", "second"))
    assert models_asked(server) == ["first"] * 3 + ["second"] * 3


async def test_a_requested_wait_is_observed_and_reported(provider: Provider, server: ModelServer) -> None:
    patience = RetryPolicy(first_wait=timedelta(0), silent_wait=timedelta(milliseconds=10))
    server.script(Fail(429, retry_after=0.03), Say("Now."))
    before = asyncio.get_running_loop().time()
    _, notices, _ = await ask(chain(provider, patience=patience))
    assert asyncio.get_running_loop().time() - before >= 0.03
    assert len(notices) == 1


async def test_nobody_waits_longer_than_patience_allows(provider: Provider, server: ModelServer) -> None:
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
        provider = SPEAKERS["chat"](server.url, http, PATIENT)
        with pytest.raises(ProviderUnreachable):
            await ask(chain(provider, "first", "second", patience=patience))
    assert "second" not in models_asked(server)


async def test_structured_output_is_never_put_together_from_pieces(provider: Provider, server: ModelServer) -> None:
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


async def test_cancelling_a_call_closes_the_connection_and_is_no_error_of_the_provider(
    provider: Provider, server: ModelServer
) -> None:
    server.otherwise(Silence(after=0))
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        call = group.create_task(ask(chain(provider, "first", "second")))
        await server.arrived(1)
        call.cancel()
        await server.gone(1)
    assert call.cancelled()
    assert models_asked(server) == ["first"]


def test_every_error_of_a_provider_has_a_reaction() -> None:
    known = [kind for kind in ProviderError.__subclasses__() if kind.__module__ == ProviderError.__module__]
    assert set(known) <= set(REACTIONS)  # those of single providers have the reaction to any other error


def test_a_chain_has_a_first_model() -> None:
    with pytest.raises(ValueError, match="at least one"):
        ModelCalls([])


@given(st.text(alphabet="ab ", min_size=1), st.text(alphabet="ab "), st.integers(1, 9))
def test_the_seam_lets_the_same_through_however_it_is_cut(before: str, after: str, step: int) -> None:
    whole, cut = ReplySeam(before), ReplySeam(before)
    once = whole.add(after) + whole.rest()
    again = "".join(cut.add(after[place : place + step]) for place in range(0, len(after), step)) + cut.rest()
    assert once == again
    assert after.endswith(once)


@pytest.mark.parametrize("pieces", [1, 3, 100])
def test_the_seam_holds_however_the_repeat_is_cut(pieces: int) -> None:
    before = "The quick brown fox jumps over the lazy"
    seam = ReplySeam(before)
    again = f"{before} dog, twice."
    step = max(len(again) // pieces, 1)
    heard = "".join(seam.add(again[place : place + step]) for place in range(0, len(again), step)) + seam.rest()
    assert heard == " dog, twice."


def test_a_short_likeness_is_no_repeat() -> None:
    seam = ReplySeam("I came, I saw, I")
    assert seam.add(" came") + seam.add(" back again and again") + seam.rest() == " came back again and again"

"""Faults of a provider become typed errors, in every protocol."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.providers.random_histories import request
from tests.providers.scripted_providers import BRIEF, CONNECTORS, PATIENT, Connect, collect_reply, listening, pool

from talaria.contracts.provider import ModelEvent, Provider
from talaria.core.errors import (
    BadKey,
    ContextTooLong,
    MalformedReply,
    ModelRefused,
    ModelUnknown,
    NoCredit,
    ProviderBusy,
    ProviderError,
    ProviderOverloaded,
    ProviderUnreachable,
)
from talaria.http_client.connection import Timeouts
from talaria.testing.model_server import (
    Answer,
    Collapse,
    CutOff,
    Fail,
    Garbage,
    ModelServer,
    Silence,
    WrongType,
    bad_key,
    context_too_long,
    model_unknown,
    no_credit,
    overloaded,
    refused,
)

pytestmark = pytest.mark.parametrize("connect", CONNECTORS.values(), ids=CONNECTORS)
streamed_and_whole = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@pytest.fixture
async def provider(connect: Connect, server: ModelServer) -> AsyncIterator[Provider]:
    async with pool() as http:
        yield connect(server.url, http, PATIENT)


@streamed_and_whole
@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (overloaded(), ProviderOverloaded),
        (Fail(500), ProviderOverloaded),
        (context_too_long(), ContextTooLong),
        (bad_key(), BadKey),
        (no_credit(), NoCredit),
        (refused(), ModelRefused),
        (model_unknown(), ModelUnknown),
        (Garbage(), MalformedReply),
        (WrongType(), MalformedReply),
        (CutOff(after=0), ProviderUnreachable),
        (Silence(after=0), ProviderUnreachable),
        (Silence(after=2), ProviderUnreachable),
        (Collapse(), ProviderOverloaded),
        (Collapse(fail=Fail(429)), ProviderBusy),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
async def test_each_fault_raises_its_error(
    connect: Connect, server: ModelServer, answer: Answer, expected: type[ProviderError], stream: bool
) -> None:
    server.script(answer)
    async with pool() as http:
        provider = connect(server.url, http, BRIEF if isinstance(answer, Silence) else PATIENT)
        with pytest.raises(expected) as raised:
            await collect_reply(provider, request(stream=stream))
    assert type(raised.value) is expected


async def test_rate_limit_error_has_the_time_to_wait(provider: Provider, server: ModelServer) -> None:
    server.script(Fail(429, retry_after=7))
    with pytest.raises(ProviderBusy) as busy:
        await collect_reply(provider, request())
    assert busy.value.retry_after == timedelta(seconds=7)


@pytest.mark.parametrize(
    "fault", [CutOff(after=3), Garbage(after=3), Collapse(after=3)], ids=lambda fault: type(fault).__name__
)
async def test_events_before_a_fault_are_passed_on(provider: Provider, server: ModelServer, fault: Answer) -> None:
    server.script(fault)
    passed_on: list[ModelEvent] = []
    with pytest.raises((ProviderUnreachable, MalformedReply, ProviderOverloaded)):
        await _collect(provider, passed_on)
    assert "".join(event.text for event in passed_on if event.text) == "These are some"  # type: ignore[union-attr]


async def test_closed_port_is_unreachable(connect: Connect) -> None:
    async with pool() as http:
        with pytest.raises(ProviderUnreachable):
            await collect_reply(connect("http://127.0.0.1:9", http, PATIENT), request())


async def test_server_without_a_tls_handshake_is_unreachable(connect: Connect) -> None:
    brief = Timeouts(connect=timedelta(milliseconds=30))
    async with listening() as (port, _), pool() as http:
        with pytest.raises(ProviderUnreachable):
            await collect_reply(connect(f"https://127.0.0.1:{port}", http, brief), request())


async def test_failed_model_list_raises_the_matching_error(connect: Connect) -> None:
    async with ModelServer(keys=["another"]) as server, pool() as http:
        with pytest.raises(BadKey):
            await connect(server.url, http, PATIENT).models()


async def _collect(provider: Provider, events: list[ModelEvent]) -> None:
    async for event in provider.reply(request()):
        events.append(event)  # noqa: PERF401 - events received before the loop raises must be collected

"""Health of models, as reported by the calls to them."""

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from tests.agent.agent_fixture import QUICK
from tests.providers.random_histories import request
from tests.providers.scripted_providers import CONNECTORS, PATIENT, pool

from talaria.agent.model_calls import ModelCalls, ModelChoice, ModelHealth
from talaria.contracts.provider import Provider
from talaria.core.errors import ContextTooLong, ProviderOverloaded
from talaria.testing.clock import NOON, SettableClock
from talaria.testing.model_server import Fail, ModelServer, context_too_long


@pytest.fixture
async def provider(server: ModelServer) -> AsyncIterator[Provider]:
    async with pool() as http:
        yield CONNECTORS["chat"](server.url, http, PATIENT)


async def ask(calls: ModelCalls) -> None:
    async for _ in calls.reply(request()):
        pass


async def test_failing_model_is_reported_until_it_answers(server: ModelServer, provider: Provider) -> None:
    clock = SettableClock()
    health = ModelHealth(clock)
    calls = ModelCalls([ModelChoice(provider, "first")], QUICK, on_result=health.record_outcome)
    for _ in range(2):
        server.script(*[Fail(500)] * QUICK.attempts)
        with pytest.raises(ProviderOverloaded):
            await ask(calls)
        clock.advance(timedelta(minutes=1))
    (state,) = health.states
    assert (state.model, state.since, state.failures) == (f"{provider.name}:first", NOON, 2 * QUICK.attempts)
    assert "500" in state.error
    await ask(calls)
    (state,) = health.states
    assert (state.error, state.since, state.failures) == ("", None, 2 * QUICK.attempts)


async def test_each_model_of_a_chain_has_its_own_health(server: ModelServer, provider: Provider) -> None:
    health = ModelHealth()
    choices = [ModelChoice(provider, model) for model in ("first", "second")]
    server.script(*[Fail(500)] * QUICK.attempts)
    await ask(ModelCalls(choices, QUICK, on_result=health.record_outcome))
    first, second = health.states
    assert first.error
    assert (second.error, second.failures) == ("", 0)


async def test_error_of_the_request_does_not_change_the_health_of_the_model(
    server: ModelServer, provider: Provider
) -> None:
    health = ModelHealth()
    server.script(context_too_long())
    with pytest.raises(ContextTooLong):
        await ask(ModelCalls([ModelChoice(provider, "first")], QUICK, on_result=health.record_outcome))
    assert health.states == []

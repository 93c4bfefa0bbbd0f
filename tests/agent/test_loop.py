"""A turn from the person's message to its end, with a real store and a scripted model."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.agent.agent_fixture import AgentSession, Allow, Echo, open_agent_session

from talaria.agent.environment import Limits, TurnControl
from talaria.contracts.tool import Effect
from talaria.core.errors import ToolFailed
from talaria.core.events import (
    ModelCalled,
    PersonJoined,
    TextAdded,
    ToolAnswered,
    ToolCalled,
    ToolRefused,
    TurnAnswered,
    TurnFailed,
    TurnOutOfBudget,
    TurnStopped,
)
from talaria.core.messages import Message, Text, ToolCall, ToolResult
from talaria.testing.model_server import Ask, Say, Tokens, bad_key, context_too_long


@pytest.fixture
async def agent_session(tmp_path: Path) -> AsyncIterator[AgentSession]:
    async with open_agent_session(tmp_path) as agent_session:
        yield agent_session


async def test_answer_ends_the_turn_and_is_in_the_transcript(agent_session: AgentSession) -> None:
    agent_session.server.script(Say("Hello there."))
    assert await agent_session.say("hi") == TurnAnswered("Hello there.")
    assert await agent_session.transcript_texts() == [("user", "hi"), ("assistant", "Hello there.")]
    assert "".join(event.text for event in agent_session.events_of(TextAdded)) == "Hello there."
    assert await agent_session.store.read(lambda tx: tx.turns.find(running=True)) == []
    assert await agent_session.store.read(lambda tx: tx.inbox.list_unsettled(agent_session.session_id)) == []


async def test_tools_answer_in_the_order_of_their_calls(agent_session: AgentSession) -> None:
    agent_session.server.script(Say(calls=[Ask("echo", {"word": w}) for w in "abc"]), Say("done"))
    assert await agent_session.say("go", Echo()) == TurnAnswered("done")
    assert (await agent_session.transcript_texts())[2] == ("tool", "A\nB\nC")
    assert [event.name for event in agent_session.events_of(ToolAnswered)] == ["echo"] * 3
    assert len(agent_session.events_of(ToolCalled)) == 3


async def test_calls_that_read_run_in_parallel_and_others_in_sequence(agent_session: AgentSession) -> None:
    meeting = asyncio.Barrier(2)
    inside = 0

    async def meet(arguments: object, call: object) -> str:
        await meeting.wait()
        return "met"

    async def alone(arguments: object, call: object) -> str:
        nonlocal inside
        inside += 1
        assert inside == 1
        await asyncio.sleep(0)
        inside -= 1
        return "was alone"

    reads, writes = Echo("reads", Effect.READS, meet), Echo("writes", Effect.IRREVERSIBLE, alone)
    agent_session.server.script(
        Say(calls=[Ask("reads", {}), Ask("writes", {"word": "1"}), Ask("reads", {}), Ask("writes", {"word": "2"})]),
        Say("done"),
    )
    assert await agent_session.say("go", reads, writes) == TurnAnswered("done")
    assert writes.ran == ["1", "2"]


async def test_errors_of_invalid_tool_calls_are_returned_to_the_model(agent_session: AgentSession) -> None:
    agent_session.server.script(
        Say(calls=[Ask("ecko", {"word": "a"}), Ask("echo", "{broken"), Ask("echo", {"word": {"no": "word"}})]),
        Say("sorry"),
    )
    assert await agent_session.say("go", Echo()) == TurnAnswered("sorry")
    unknown, broken, unfit = [
        part
        for stored in await agent_session.transcript()
        for part in stored.message.parts
        if isinstance(part, ToolResult)
    ]
    assert "Did you mean echo?" in unknown.text
    assert "not JSON" in broken.text
    assert "Invalid arguments" in unfit.text
    assert all(result.failed for result in (unknown, broken, unfit))


@pytest.mark.parametrize("arguments", ['```json\n{"word": "a"}\n```', '{"word": "a",}'])
async def test_malformed_tool_call_is_repaired_if_safe(agent_session: AgentSession, arguments: str) -> None:
    agent_session.server.script(Say(calls=[Ask("functions.Echo", arguments)]), Say("done"))
    echo = Echo()
    await agent_session.say("go", echo)
    assert echo.ran == ["a"]


async def test_tool_that_raises_fails_its_call_and_not_the_turn(agent_session: AgentSession) -> None:
    def breaks(arguments: object, call: object) -> str:
        raise ZeroDivisionError("oh")

    def fails(arguments: object, call: object) -> str:
        raise ToolFailed("there is no such thing")

    agent_session.server.script(Say(calls=[Ask("one", {}), Ask("two", {})]), Say("I see"))
    assert await agent_session.say("go", Echo("one", does=breaks), Echo("two", does=fails)) == TurnAnswered("I see")
    assert "there is no such thing" in (await agent_session.transcript_texts())[2][1]


async def test_repeatedly_failing_call_ends_the_turn(agent_session: AgentSession) -> None:
    def fails(arguments: object, call: object) -> str:
        raise ToolFailed("no")

    agent_session.server.otherwise(Say(calls=[Ask("echo", {"word": "same"})]))
    echo = Echo(does=fails)
    assert isinstance(await agent_session.say("go", echo), TurnFailed)
    assert len(echo.ran) == 5
    assert "has failed 3 times" in (await agent_session.transcript_texts())[6][1]


async def test_denied_call_does_not_run_and_the_model_gets_the_reason(agent_session: AgentSession) -> None:
    agent_session.server.script(Say(calls=[Ask("echo", {"word": "x"})]), Say("as you wish"))
    echo = Echo()
    assert await agent_session.say(
        "go", echo, environment=agent_session.environment(approver=Allow("deny"))
    ) == TurnAnswered("as you wish")
    assert echo.ran == []
    assert "Not allowed: the house rules" in (await agent_session.transcript_texts())[2][1]
    (refused,) = agent_session.events_of(ToolRefused)
    assert refused.call.name == "echo"
    assert "the house rules" in refused.reason


@pytest.mark.parametrize(
    ("limits", "which"),
    [
        (Limits(iterations=3), "iterations"),
        (Limits(tokens=1_500), "tokens"),
        (Limits(cost_microdollars=10_000), "money"),
        (Limits(seconds=0.2), "time"),
    ],
)
async def test_a_turn_ends_at_its_limits(agent_session: AgentSession, limits: Limits, which: str) -> None:
    agent_session.server.otherwise(
        Say(calls=[Ask("echo", {"word": "x"})], usage=Tokens(input=1_000, output=100), pause=0.02)
    )
    end = await agent_session.say("go", Echo(), environment=agent_session.environment(limits=lambda: limits))
    assert isinstance(end, TurnOutOfBudget)
    assert end.limit == which
    assert await _has_all_results(agent_session)


async def test_stopped_turn_stores_the_partial_reply(agent_session: AgentSession) -> None:
    agent_session.server.script(Say("one two three four five six seven eight", pause=0.02))
    assert await _stop_at(agent_session, TextAdded, 3) is True
    role, text = (await agent_session.transcript_texts())[-1]
    assert role == "assistant"
    assert "one two three four five six seven eight".startswith(text)
    assert await agent_session.store.read(lambda tx: tx.turns.find(running=True)) == []
    await agent_session.server.gone(1)


async def test_stopped_turn_stores_a_result_for_every_call(agent_session: AgentSession) -> None:
    async def waits(arguments: object, call: object) -> str:
        await asyncio.Event().wait()
        return "never"

    agent_session.server.script(Say(calls=[Ask("fast", {"word": "a"}), Ask("slow", {})]))
    tools = (Echo("fast"), Echo("slow", Effect.IRREVERSIBLE, waits))
    assert await _stop_at(agent_session, ToolCalled, 2, *tools) is True
    assert "Stopped by the person" in (await agent_session.transcript_texts())[-1][1]
    assert await _has_all_results(agent_session)


async def test_turn_of_an_ended_program_is_resumed_without_irreversible_calls(agent_session: AgentSession) -> None:
    async def waits(arguments: object, call: object) -> str:
        await asyncio.Event().wait()
        return "never"

    once = Echo("send", Effect.IRREVERSIBLE, waits)
    agent_session.server.script(
        Say(calls=[Ask("echo", {"word": "a"}), Ask("send", {"word": "mail"})]), Say("I will check")
    )
    assert await _stop_at(agent_session, ToolCalled, 2, Echo(), once, by_person=False) is False
    again = Echo("send", Effect.IRREVERSIBLE)
    assert await agent_session.run_pending_turns(Echo(), again) == TurnAnswered("I will check")
    assert again.ran == []
    assert "outcome is unknown" in (await agent_session.transcript_texts())[2][1]
    assert len(agent_session.server.received) == 2


async def test_resumed_turn_repeats_calls_that_only_read(agent_session: AgentSession) -> None:
    async def waits(arguments: object, call: object) -> str:
        await asyncio.Event().wait()
        return "never"

    agent_session.server.script(Say(calls=[Ask("look", {"word": "a"})]), Say("found"))
    assert await _stop_at(agent_session, ToolCalled, 1, Echo("look", Effect.READS, waits), by_person=False) is False
    again = Echo("look")
    assert await agent_session.run_pending_turns(again) == TurnAnswered("found")
    assert again.ran == ["a"]


async def test_steering_text_joins_before_the_next_model_call(agent_session: AgentSession) -> None:
    waiting = [[], [Message(role="user", parts=(Text("in French, please"),), at=datetime.now(UTC))]]

    async def joined() -> list[Message]:
        return waiting.pop(0) if waiting else []

    agent_session.server.script(Say(calls=[Ask("echo", {"word": "a"})]), Say("voilà"))
    assert await agent_session.say("go", Echo(), control=TurnControl(joined=joined)) == TurnAnswered("voilà")
    assert agent_session.events_of(PersonJoined) == [PersonJoined("in French, please")]
    assert agent_session.server.received[1].json["messages"][-1]["content"] == "in French, please"


async def test_provider_error_fails_the_turn_with_a_message_that_hides_the_key(agent_session: AgentSession) -> None:
    agent_session.server.otherwise(bad_key())
    end = await agent_session.say("hi")
    assert isinstance(end, TurnFailed)
    assert "key" in end.text
    assert "sk-test" not in end.text


async def test_usage_and_cost_are_added_to_the_session(agent_session: AgentSession) -> None:
    agent_session.server.script(
        Say("x", usage=Tokens(input=1_000, output=200)), Say("y", usage=Tokens(input=2_000, output=100))
    )
    await agent_session.say("one")
    await agent_session.say("two")
    session = await agent_session.store.read(lambda tx: tx.sessions.get(agent_session.session_id))
    assert session is not None
    assert (session.usage.calls, session.usage.input_tokens, session.usage.output_tokens) == (2, 3_000, 300)
    assert session.usage.cost_microdollars == 3_000 * 3 + 300 * 15
    assert [event.context for event in agent_session.events_of(ModelCalled)] == [1_200, 2_100]


async def test_session_that_is_too_long_is_summarised_and_continues(agent_session: AgentSession) -> None:
    for number in range(12):
        await agent_session.say(f"fact {number}: " + "x" * 3_000)
    summary = "The person told twelve facts, numbered from zero, and each had a long tail of the letter x."
    agent_session.server.script(context_too_long(), Say(summary), Say("on we go"))
    assert await agent_session.say("what now?") == TurnAnswered("on we go")
    sent = agent_session.server.received[-1].json["messages"]
    assert summary in sent[1]["content"]
    assert len(sent) < 20
    assert len(await agent_session.transcript()) == 26


async def test_useless_summary_fails_the_turn_and_leaves_the_messages_unchanged(agent_session: AgentSession) -> None:
    for number in range(12):
        await agent_session.say(f"fact {number}: " + "x" * 3_000)
    agent_session.server.script(context_too_long(), Say(" "))
    assert isinstance(await agent_session.say("what now?"), TurnFailed)
    agent_session.server.script(Say("fine again"))
    await agent_session.say("and now?")
    assert len(agent_session.server.received[-1].json["messages"]) > 25


async def _stop_at(
    agent_session: AgentSession, kind: type[object], count: int, *tools: Echo, by_person: bool = True
) -> bool:
    """Stop a turn after this many events of a kind; return whether it ended as stopped."""
    reached = asyncio.Event()

    def publish(event: object) -> None:
        agent_session.events.append(event)  # type: ignore[arg-type]
        if len(agent_session.events_of(kind)) >= count:
            reached.set()

    environment, control = agent_session.environment(publish=publish), TurnControl(stopped=lambda: by_person)
    async with asyncio.TaskGroup() as group:
        turn = group.create_task(agent_session.say("go", *tools, environment=environment, control=control))
        await reached.wait()
        turn.cancel()
    return bool(agent_session.events_of(TurnStopped))


async def _has_all_results(agent_session: AgentSession) -> bool:
    """Return whether every call in the transcript has its result."""
    parts = [part for stored in await agent_session.transcript() for part in stored.message.parts]
    calls = {part.id for part in parts if isinstance(part, ToolCall)}
    return calls == {part.call_id for part in parts if isinstance(part, ToolResult)}

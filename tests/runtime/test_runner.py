"""Runner of a session as a surface uses it: messages, stop, steering and titles."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.agent.agent_fixture import AgentSession, Echo, open_agent_session

from talaria.agent.auxiliary import Auxiliary
from talaria.contracts.tool import Tool
from talaria.core.errors import Refused
from talaria.core.events import TextAdded, ToolCalled, TurnAnswered, TurnStopped
from talaria.core.messages import Message, Text
from talaria.runtime.runner import RunnerOptions, SessionRunner
from talaria.testing.model_server import Ask, Say, Tokens
from talaria.testing.wait import until


@pytest.fixture
async def agent_session(tmp_path: Path) -> AsyncIterator[AgentSession]:
    async with open_agent_session(tmp_path) as agent_session:
        yield agent_session


async def test_duplicate_message_is_answered_once(agent_session: AgentSession) -> None:
    async with _open(agent_session) as runner:
        assert await runner.say(_message("hi"), source="test", external_id="1") == TurnAnswered("ok")
        assert await runner.say(_message("hi"), source="test", external_id="1") is None
    assert len(agent_session.server.received) == 1


async def test_stop_ends_the_turn_and_the_next_message_is_answered(agent_session: AgentSession) -> None:
    agent_session.server.script(Say("one two three four five", pause=0.05), Say("fine"))
    async with _open(agent_session) as runner, asyncio.TaskGroup() as group:
        turn = group.create_task(runner.say(_message("go"), source="test", external_id="1"))
        await _until_event(agent_session, TextAdded)
        assert runner.stop()
        assert await turn == TurnStopped()
        assert not runner.stop()
        assert await runner.say(_message("and now?"), source="test", external_id="2") == TurnAnswered("fine")


async def test_a_message_joins_the_running_turn(agent_session: AgentSession) -> None:
    resumed = asyncio.Event()

    async def wait(arguments: object, call: object) -> str:
        await resumed.wait()
        return "done"

    agent_session.server.script(Say(calls=[Ask("echo", {})]), Say("merci"))
    async with _open(agent_session, Echo(does=wait)) as runner, asyncio.TaskGroup() as group:
        turn = group.create_task(runner.say(_message("go"), source="test", external_id="1"))
        await _until_event(agent_session, ToolCalled)
        await runner.put(_message("in French"), source="test", external_id="2", steering=True)
        resumed.set()
        assert await turn == TurnAnswered("merci")
    assert agent_session.server.received[-1].json["messages"][-1]["content"] == "in French"


async def test_a_session_gets_a_title_after_its_first_reply(agent_session: AgentSession) -> None:
    agent_session.server.script(Say("Take the night train."), Say('"Night train to Vienna."'))
    async with _open(agent_session, titled=True) as runner:
        await runner.say(_message("How do I get to Vienna?"), source="test", external_id="1")
    session = await agent_session.store.read(lambda tx: tx.sessions.get(agent_session.session_id))
    assert session is not None
    assert session.title == "Night train to Vienna"


async def test_message_to_a_session_leased_by_another_worker_is_refused_but_stored(agent_session: AgentSession) -> None:
    lease = await agent_session.store.write(
        lambda tx: tx.leases.acquire(f"session:{agent_session.session_id}", timedelta(minutes=1))
    )
    assert lease is not None
    async with _open(agent_session) as runner:
        with pytest.raises(Refused, match="Another process"):
            await runner.say(_message("hi"), source="test", external_id="1")
        await agent_session.store.write(lambda tx: tx.leases.release(lease))
        assert await runner.run_pending_turns() == TurnAnswered("ok")


async def test_a_long_session_is_summarised_after_the_reply(agent_session: AgentSession) -> None:
    for number in range(9):
        await agent_session.say(f"fact {number}: " + "word " * 600)
    summary = "The person told nine facts, numbered from zero; each was followed by many words without a meaning."
    agent_session.server.script(Say("Noted.", usage=Tokens(input=7_000, output=10)), Say(summary), Say("As you say."))
    async with _open(agent_session) as runner:
        assert await runner.say(_message("and that is all"), source="test", external_id="1") == TurnAnswered("Noted.")
    async with _open(agent_session) as runner:
        await runner.say(_message("well?"), source="test", external_id="2")
    assert summary in agent_session.server.received[-1].json["messages"][1]["content"]


async def test_a_closed_runner_starts_no_turn(agent_session: AgentSession) -> None:
    async with _open(agent_session) as runner:
        await runner.close()
        with pytest.raises(Refused, match="closed"):
            await runner.say(_message("hi"), source="test", external_id="1")
    assert agent_session.server.received == []
    async with _open(agent_session) as runner:
        assert await runner.run_pending_turns() == TurnAnswered("ok")


async def test_a_second_stop_changes_nothing(agent_session: AgentSession) -> None:
    agent_session.server.script(Say("one two three four five", pause=0.05), Say("fine"))
    async with _open(agent_session) as runner, asyncio.TaskGroup() as group:
        turn = group.create_task(runner.say(_message("go"), source="test", external_id="1"))
        await _until_event(agent_session, TextAdded)
        await runner.put(_message("and then?"), source="test", external_id="2")
        assert runner.stop()
        assert runner.stop()
        assert await turn == TurnAnswered("fine")
    assert [type(end) for end in (*agent_session.events_of(TurnStopped), *agent_session.events_of(TurnAnswered))] == [
        TurnStopped,
        TurnAnswered,
    ]


@asynccontextmanager
async def _open(agent_session: AgentSession, *tools: Tool, titled: bool = False) -> AsyncIterator[SessionRunner]:
    auxiliary, options = Auxiliary(agent_session.calls), RunnerOptions(titled=titled)
    async with asyncio.TaskGroup() as jobs:
        runner = SessionRunner(
            agent_session.store,
            agent_session.session_id,
            agent_session.agent(*tools),
            agent_session.environment(),
            jobs,
            auxiliary=auxiliary,
            options=options,
        )
        yield runner
        await runner.close()


async def _until_event(agent_session: AgentSession, kind: type[object]) -> None:
    await until(lambda: agent_session.events_of(kind))


def _message(text: str) -> Message:
    return Message(role="user", parts=(Text(text),), at=datetime.now(UTC))

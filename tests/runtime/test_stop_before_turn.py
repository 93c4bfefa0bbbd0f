"""A stop before the start of a turn ends that turn, once, and no other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.agent.agent_fixture import AgentSession, Echo, open_agent_session
from tests.storage.slow_store import SlowStore

from talaria.agent.auxiliary import Auxiliary
from talaria.agent.tool_dispatch import STOPPED
from talaria.contracts.platform import Attachment
from talaria.contracts.store import Store
from talaria.contracts.tool import Tool
from talaria.core.events import ToolCalled, TurnAnswered, TurnStopped
from talaria.core.messages import Message, Text, ToolResult
from talaria.runtime.runner import RunnerOptions, SessionRunner
from talaria.runtime.turns import InboxMessage, PendingAttachments, add_to_inbox, make_inbox_arrival
from talaria.testing.model_server import Ask, Say
from talaria.testing.wait import until


@pytest.fixture
async def agent_session(tmp_path: Path) -> AsyncIterator[AgentSession]:
    async with open_agent_session(tmp_path) as agent_session:
        yield agent_session


async def test_a_stop_before_the_claim_ends_the_turn_and_no_later_one(agent_session: AgentSession) -> None:
    async with _open(agent_session) as runner:
        await _arrive(agent_session, "one")
        runner.wake()
        assert runner.stop()
        assert await runner.wait_until_idle() == TurnStopped()
        await _arrive(agent_session, "two")
        assert await runner.run_pending_turns() == TurnAnswered("ok")
    assert _questions(agent_session) == ["two"]
    assert agent_session.events_of(TurnStopped) == [TurnStopped()]


@pytest.mark.parametrize("times", [1, 2])
async def test_a_stop_during_the_claim_ends_the_turn_once(agent_session: AgentSession, times: int) -> None:
    store = SlowStore(agent_session.store)
    async with _open(agent_session, store=store) as runner:
        await _arrive(agent_session, "one")
        await _arrive(agent_session, "two")
        runner.wake()
        await store.committed.wait()
        assert [runner.stop() for _ in range(times)] == [True] * times
        store.resumed.set()
        assert await runner.wait_until_idle() == TurnAnswered("ok")
    assert _questions(agent_session) == ["two"]
    turns = await agent_session.store.read(lambda tx: tx.turns.find(agent_session.session_id))
    assert sorted(turn.state for turn in turns) == ["answered", "stopped"]
    assert agent_session.events_of(TurnStopped) == [TurnStopped()]


@pytest.mark.parametrize("is_stopped_first", [True, False])
async def test_stop_during_an_empty_claim_does_not_stop_a_later_message(
    agent_session: AgentSession, is_stopped_first: bool
) -> None:
    store = SlowStore(agent_session.store)
    async with _open(agent_session, store=store) as runner:
        runner.wake()
        await store.committed.wait()
        if is_stopped_first:
            runner.stop()
        await _arrive(agent_session, "one")
        runner.wake()
        if not is_stopped_first:
            runner.stop()
        store.resumed.set()
        assert await runner.wait_until_idle() == (TurnAnswered("ok") if is_stopped_first else TurnStopped())


async def test_a_stop_before_the_files_of_a_message_are_fetched_ends_its_turn(agent_session: AgentSession) -> None:
    async def fetch(pending: PendingAttachments) -> Message:
        raise AssertionError("files of a stopped turn are not fetched")

    notes = (Attachment("f1", "document", "notes.txt"),)
    message = InboxMessage(role="user", parts=(Text("look"),), at=datetime.now(UTC), attachments=notes)
    arrival = make_inbox_arrival(agent_session.session_id, "test", "look", message, kind="message")
    async with _open(agent_session, options=RunnerOptions(titled=False, unpack=fetch)) as runner:
        await agent_session.store.write(lambda tx: tx.inbox.add(arrival))
        runner.wake()
        assert runner.stop()
        assert await runner.wait_until_idle() == TurnStopped()
    assert _questions(agent_session) == []
    assert "notes.txt was not downloaded" in str(await agent_session.transcript_texts())


async def test_stop_before_a_turn_is_resumed_closes_its_open_tool_calls(agent_session: AgentSession) -> None:
    async def wait(arguments: object, call: object) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    agent_session.server.script(Say(calls=[Ask("echo", {})]))
    tool = Echo(does=wait)
    async with _open(agent_session, tool) as runner:
        await _arrive(agent_session, "one")
        runner.wake()
        await until(lambda: agent_session.events_of(ToolCalled))
    async with _open(agent_session, tool) as runner:
        runner.wake()
        assert runner.stop()
        assert await runner.wait_until_idle() == TurnStopped()
    stored = await agent_session.store.read(lambda tx: tx.messages.load(agent_session.session_id))
    [result] = stored[-1].message.parts
    assert isinstance(result, ToolResult)
    assert (result.text, result.failed) == (STOPPED, True)


@asynccontextmanager
async def _open(
    agent_session: AgentSession, *tools: Tool, store: Store | None = None, options: RunnerOptions | None = None
) -> AsyncIterator[SessionRunner]:
    async with asyncio.TaskGroup() as jobs:
        runner = SessionRunner(
            store or agent_session.store,
            agent_session.session_id,
            agent_session.agent(*tools),
            agent_session.environment(),
            jobs,
            auxiliary=Auxiliary(agent_session.calls),
            options=options or RunnerOptions(titled=False),
        )
        yield runner
        await runner.close()


async def _arrive(agent_session: AgentSession, text: str) -> None:
    message = Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
    assert await add_to_inbox(agent_session.store, agent_session.session_id, "test", text, message)


def _questions(agent_session: AgentSession) -> list[str]:
    return [received.question for received in agent_session.server.received]

"""A turn ends as soon as it is stopped, at any point, and leaves nothing running."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.agent_fixture import AgentSession, Echo, open_agent_session

from talaria.agent.environment import TurnControl
from talaria.contracts.tool import Effect, Tool
from talaria.core.errors import LeaseLost
from talaria.core.events import (
    ModelCalled,
    QuestionAsked,
    TextAdded,
    ToolAnswered,
    ToolCalled,
    ToolProgressed,
    TurnEvent,
    TurnStopped,
)
from talaria.core.messages import ToolCall, ToolResult
from talaria.runtime.questions import Questions
from talaria.sessions.model_context import read_summary
from talaria.testing.model_server import Ask, Fail, Say, Silence, context_too_long
from talaria.testing.wait import LIMIT
from talaria.tools.output import FullOutputs
from talaria.tools.send.tool import Clarify
from talaria.tools.terminal.shell import Processes
from talaria.tools.terminal.tool import Terminal
from talaria.tools.workspace import LocalWorkspace

TREE = (
    "sleep 600 & echo $! >one; (sleep 600 & echo $! >two; wait) & echo $$ >shell;"
    " until [ -s two ]; do :; done; echo ready; wait"
)


@pytest.fixture
async def agent_session(tmp_path: Path) -> AsyncIterator[AgentSession]:
    async with open_agent_session(tmp_path) as agent_session:
        yield agent_session


class EventRecorder:
    """Records the events of a turn, and signals the first one of a kind."""

    def __init__(self, agent_session: AgentSession, kind: type[object] = TurnStopped) -> None:
        self._agent_session = agent_session
        self._kind = kind
        self._seen = asyncio.Event()

    def record(self, event: TurnEvent) -> None:
        self._agent_session.events.append(event)
        if isinstance(event, self._kind):
            self._seen.set()

    async def wait(self) -> None:
        await self._seen.wait()


async def stop_at(agent_session: AgentSession, kind: type[object], *tools: Tool, **changes: Any) -> None:
    """Stop a turn at its first event of this kind."""
    recorder = EventRecorder(agent_session, kind)
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        turn = _start_turn(group, agent_session, recorder, *tools, **changes)
        await recorder.wait()
        await _stop(agent_session, turn)


async def stop_at_call(agent_session: AgentSession, number: int) -> None:
    """Stop a turn when this many model calls have arrived."""
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        turn = _start_turn(group, agent_session, EventRecorder(agent_session))
        await agent_session.server.arrived(number)
        await _stop(agent_session, turn)


def _start_turn(
    group: asyncio.TaskGroup, agent_session: AgentSession, recorder: EventRecorder, *tools: Tool, **changes: Any
) -> asyncio.Task[Any]:
    environment = agent_session.environment(**{"publish": recorder.record, **changes})
    control = TurnControl(stopped=lambda: True)
    return group.create_task(agent_session.say("go", *tools, environment=environment, control=control))


async def _stop(agent_session: AgentSession, turn: asyncio.Task[Any]) -> None:
    turn.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await turn
    assert agent_session.events_of(TurnStopped)
    parts = [part for stored in await agent_session.transcript() for part in stored.message.parts]
    calls = [part.id for part in parts if isinstance(part, ToolCall)]
    assert calls == [part.call_id for part in parts if isinstance(part, ToolResult)]
    assert await agent_session.store.read(lambda tx: tx.inbox.list_unsettled(agent_session.session_id)) == []
    assert await agent_session.store.read(lambda tx: tx.turns.find(agent_session.session_id, running=True)) == []


async def test_stop_disconnects_from_a_silent_model(agent_session: AgentSession) -> None:
    agent_session.server.script(Silence(after=0))
    await stop_at_call(agent_session, 1)
    await agent_session.server.gone()
    assert agent_session.server.open_streams == 0
    assert await agent_session.transcript_texts() == [("user", "go")]


async def test_stop_disconnects_from_a_replying_model_and_stores_the_partial_text(agent_session: AgentSession) -> None:
    agent_session.server.script(Silence(Say("one two three four"), after=2))
    await stop_at(agent_session, TextAdded)
    await agent_session.server.gone()
    assert agent_session.server.open_streams == 0
    role, text = (await agent_session.transcript_texts())[-1]
    assert role == "assistant"
    assert "one two".startswith(text)


async def test_stop_ends_the_wait_for_a_busy_model(agent_session: AgentSession) -> None:
    agent_session.server.otherwise(Fail(429, retry_after=0.015))
    await stop_at_call(agent_session, 1)
    assert await agent_session.transcript_texts() == [("user", "go")]


async def test_stop_cancels_a_running_summary(agent_session: AgentSession) -> None:
    for number in range(12):
        await agent_session.say(f"fact {number}: " + "x" * 3_000)
    agent_session.server.script(context_too_long(), Silence(after=0))
    await stop_at_call(agent_session, 14)
    await agent_session.server.gone()
    assert await agent_session.store.read(lambda tx: read_summary(tx, agent_session.session_id)) is None


@pytest.mark.parametrize("effect", Effect)
async def test_stopped_tool_ends_before_the_turn_ends(agent_session: AgentSession, effect: Effect) -> None:
    ended: list[int] = []

    async def wait(arguments: object, call: object) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(len(agent_session.events_of(TurnStopped)))
        return "never"

    agent_session.server.script(Say(calls=[Ask("wait", {})]))
    await stop_at(agent_session, ToolCalled, Echo("wait", effect, wait))
    assert ended == [0]
    assert "Stopped by the person" in (await agent_session.transcript_texts())[-1][1]


async def test_stop_preserves_results_of_finished_tool_calls(agent_session: AgentSession) -> None:
    async def wait(arguments: object, call: object) -> str:
        await asyncio.Event().wait()
        return "never"

    agent_session.server.script(Say(calls=[Ask("wait", {}), Ask("echo", {"word": "quick"})]))
    await stop_at(agent_session, ToolAnswered, Echo("wait", Effect.READS, wait), Echo())
    waited, quick = (await agent_session.transcript_texts())[-1][1].split("\n")
    assert "Stopped by the person" in waited
    assert quick == "QUICK"


@pytest.mark.slow
async def test_stop_kills_the_process_tree_of_a_command_before_the_turn_ends(agent_session: AgentSession) -> None:
    processes = Processes()
    terminal = Terminal(processes, FullOutputs(agent_session.folder / "outputs"))
    workspace = LocalWorkspace(agent_session.folder, {"PATH": "/usr/local/bin:/usr/bin:/bin"})
    agent_session.server.script(Say(calls=[Ask("terminal", {"command": TREE})]))
    await stop_at(agent_session, ToolProgressed, terminal, workspace=workspace)
    assert not processes.running
    pids = [int((agent_session.folder / name).read_text()) for name in ("one", "two", "shell")]
    assert not any(map(_is_alive, pids))


async def test_stop_withdraws_an_unanswered_question(agent_session: AgentSession) -> None:
    recorder = EventRecorder(agent_session, QuestionAsked)
    questions = Questions(recorder.record)
    agent_session.server.script(Say(calls=[Ask("clarify", {"question": "Which one?"})]))
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        turn = _start_turn(group, agent_session, recorder, Clarify(), person=questions)
        await recorder.wait()
        assert questions.waiting
        await _stop(agent_session, turn)
    assert questions.waiting == []


@pytest.mark.parametrize("moment", [ModelCalled, ToolCalled, ToolAnswered])
async def test_stop_while_a_step_is_stored_stores_it_completely(
    agent_session: AgentSession, moment: type[object]
) -> None:
    agent_session.server.script(Say("let me see", calls=[Ask("echo", {"word": "a"})]), Say("done"))
    await _stop_within(agent_session, moment)
    texts = [text for _, text in await agent_session.transcript_texts()]
    assert texts[:2] == ["go", "let me see"]
    assert len(texts) == 3


async def test_stop_while_the_answer_is_stored_leaves_one_answer(agent_session: AgentSession) -> None:
    agent_session.server.script(Say("done"))
    await _stop_within(agent_session, ModelCalled)
    assert await agent_session.transcript_texts() == [("user", "go"), ("assistant", "done")]
    [turn] = await agent_session.store.read(lambda tx: tx.turns.find(agent_session.session_id))
    assert turn.state == "answered"


async def test_next_turn_runs_normally_after_a_stop(agent_session: AgentSession) -> None:
    agent_session.server.script(Silence(after=0), Say("hello"))
    await stop_at_call(agent_session, 1)
    await agent_session.say("are you there?")
    assert (await agent_session.transcript_texts())[-1] == ("assistant", "hello")


async def _stop_within(agent_session: AgentSession, kind: type[object]) -> None:
    """Stop a turn from within its own event, so that it is cancelled at its next step."""
    turns: list[asyncio.Task[Any]] = []

    def record(event: TurnEvent) -> None:
        agent_session.events.append(event)
        if isinstance(event, kind):
            turns[0].cancel()

    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        turns.append(_start_turn(group, agent_session, EventRecorder(agent_session), Echo(), publish=record))
        with contextlib.suppress(asyncio.CancelledError):
            await turns[0]
    assert await agent_session.store.read(lambda tx: tx.turns.find(agent_session.session_id, running=True)) == []


async def test_turn_that_lost_its_lease_ends_without_an_answer_or_error_log(
    agent_session: AgentSession, caplog: pytest.LogCaptureFixture
) -> None:
    async def lose(arguments: object, call: object) -> str:
        lease = await agent_session.store.read(lambda tx: tx.leases.get(f"session:{agent_session.session_id}"))
        assert lease is not None
        await agent_session.store.write(lambda tx: tx.leases.release(lease))
        return "lost"

    agent_session.server.script(Say(calls=[Ask("lose", {})]))
    with pytest.raises(LeaseLost):
        await agent_session.say("go", Echo("lose", does=lose))
    assert [text for _, text in await agent_session.transcript_texts()] == ["go", ""]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()

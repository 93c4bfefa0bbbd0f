"""A turn ends as soon as it is stopped, wherever it is, and leaves nothing behind that still runs."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.agent_fixture import Echo, Workshop, workshop

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
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    async with workshop(tmp_path) as shop:
        yield shop


class Ear:
    """Hears of a turn's events, and tells when one of a kind has come."""

    def __init__(self, shop: Workshop, kind: type[object] = TurnStopped) -> None:
        self._shop = shop
        self._kind = kind
        self._heard = asyncio.Event()

    def hear(self, event: TurnEvent) -> None:
        self._shop.events.append(event)
        if isinstance(event, self._kind):
            self._heard.set()

    async def wait(self) -> None:
        await self._heard.wait()


async def stop_at(shop: Workshop, kind: type[object], *tools: Tool, **around: Any) -> None:
    """Stop a turn as soon as an event of this kind has been heard."""
    ear = Ear(shop, kind)
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        turn = _begin(group, shop, ear, *tools, **around)
        await ear.wait()
        await _stop(shop, turn)


async def stop_at_call(shop: Workshop, number: int) -> None:
    """Stop a turn as soon as so many model calls have arrived."""
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        turn = _begin(group, shop, Ear(shop))
        await shop.server.arrived(number)
        await _stop(shop, turn)


def _begin(group: asyncio.TaskGroup, shop: Workshop, ear: Ear, *tools: Tool, **around: Any) -> asyncio.Task[Any]:
    environment = shop.around(**{"publish": ear.hear, **around})
    control = TurnControl(stopped=lambda: True)
    return group.create_task(shop.say("go", *tools, around=environment, control=control))


async def _stop(shop: Workshop, turn: asyncio.Task[Any]) -> None:
    turn.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await turn
    assert shop.heard(TurnStopped)
    parts = [part for stored in await shop.transcript() for part in stored.message.parts]
    calls = [part.id for part in parts if isinstance(part, ToolCall)]
    assert calls == [part.call_id for part in parts if isinstance(part, ToolResult)]
    assert await shop.store.read(lambda tx: tx.inbox.unsettled(shop.session_id)) == []
    assert await shop.store.read(lambda tx: tx.turns.find(shop.session_id, running=True)) == []


async def test_a_model_that_says_nothing_is_hung_up_on(shop: Workshop) -> None:
    shop.server.script(Silence(after=0))
    await stop_at_call(shop, 1)
    await shop.server.gone()
    assert shop.server.open_streams == 0
    assert await shop.told() == [("user", "go")]


async def test_a_model_that_is_speaking_is_hung_up_on_and_its_words_are_kept(shop: Workshop) -> None:
    shop.server.script(Silence(Say("one two three four"), after=2))
    await stop_at(shop, TextAdded)
    await shop.server.gone()
    assert shop.server.open_streams == 0
    role, text = (await shop.told())[-1]
    assert role == "assistant"
    assert "one two".startswith(text)


async def test_a_wait_for_a_busy_model_is_cut_short(shop: Workshop) -> None:
    shop.server.otherwise(Fail(429, retry_after=0.015))
    await stop_at_call(shop, 1)
    assert await shop.told() == [("user", "go")]


async def test_a_summary_in_the_making_is_given_up(shop: Workshop) -> None:
    for number in range(12):
        await shop.say(f"fact {number}: " + "x" * 3_000)
    shop.server.script(context_too_long(), Silence(after=0))
    await stop_at_call(shop, 14)
    await shop.server.gone()
    assert await shop.store.read(lambda tx: read_summary(tx, shop.session_id)) is None


@pytest.mark.parametrize("effect", Effect)
async def test_a_tool_is_ended_before_the_turn_is(shop: Workshop, effect: Effect) -> None:
    ended: list[int] = []

    async def wait(arguments: object, call: object) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(len(shop.heard(TurnStopped)))
        return "never"

    shop.server.script(Say(calls=[Ask("wait", {})]))
    await stop_at(shop, ToolCalled, Echo("wait", effect, wait))
    assert ended == [0]
    assert "Stopped by the person" in (await shop.told())[-1][1]


async def test_of_several_calls_those_that_were_done_keep_their_results(shop: Workshop) -> None:
    async def wait(arguments: object, call: object) -> str:
        await asyncio.Event().wait()
        return "never"

    shop.server.script(Say(calls=[Ask("wait", {}), Ask("echo", {"word": "quick"})]))
    await stop_at(shop, ToolAnswered, Echo("wait", Effect.READS, wait), Echo())
    waited, quick = (await shop.told())[-1][1].split("\n")
    assert "Stopped by the person" in waited
    assert quick == "QUICK"


@pytest.mark.slow
async def test_a_tree_of_processes_is_gone_before_the_turn_is(shop: Workshop) -> None:
    processes = Processes()
    terminal = Terminal(processes, FullOutputs(shop.folder / "outputs"))
    workspace = LocalWorkspace(shop.folder, {"PATH": "/usr/local/bin:/usr/bin:/bin"})
    shop.server.script(Say(calls=[Ask("terminal", {"command": TREE})]))
    await stop_at(shop, ToolProgressed, terminal, workspace=workspace)
    assert not processes.running
    pids = [int((shop.folder / name).read_text()) for name in ("one", "two", "shell")]
    assert not any(map(_is_alive, pids))


async def test_a_question_that_nobody_answered_is_withdrawn(shop: Workshop) -> None:
    ear = Ear(shop, QuestionAsked)
    questions = Questions(ear.hear)
    shop.server.script(Say(calls=[Ask("clarify", {"question": "Which one?"})]))
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        turn = _begin(group, shop, ear, Clarify(), person=questions)
        await ear.wait()
        assert questions.waiting
        await _stop(shop, turn)
    assert questions.waiting == []


@pytest.mark.parametrize("moment", [ModelCalled, ToolCalled, ToolAnswered])
async def test_a_stop_while_a_step_is_being_stored_leaves_it_whole(shop: Workshop, moment: type[object]) -> None:
    shop.server.script(Say("let me see", calls=[Ask("echo", {"word": "a"})]), Say("done"))
    await _stop_within(shop, moment)
    told = [text for _, text in await shop.told()]
    assert told[:2] == ["go", "let me see"]
    assert len(told) == 3


async def test_a_stop_while_the_answer_is_being_stored_leaves_one_answer(shop: Workshop) -> None:
    shop.server.script(Say("done"))
    await _stop_within(shop, ModelCalled)
    assert await shop.told() == [("user", "go"), ("assistant", "done")]
    [turn] = await shop.store.read(lambda tx: tx.turns.find(shop.session_id))
    assert turn.state == "answered"


async def test_the_next_turn_begins_as_if_nothing_had_been_cut_off(shop: Workshop) -> None:
    shop.server.script(Silence(after=0), Say("hello"))
    await stop_at_call(shop, 1)
    await shop.say("are you there?")
    assert (await shop.told())[-1] == ("assistant", "hello")


async def _stop_within(shop: Workshop, kind: type[object]) -> None:
    """Stop a turn from within its own event, so that it ends in whatever it does next."""
    turns: list[asyncio.Task[Any]] = []

    def hear(event: TurnEvent) -> None:
        shop.events.append(event)
        if isinstance(event, kind):
            turns[0].cancel()

    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as group:
        turns.append(_begin(group, shop, Ear(shop), Echo(), publish=hear))
        with contextlib.suppress(asyncio.CancelledError):
            await turns[0]
    assert await shop.store.read(lambda tx: tx.turns.find(shop.session_id, running=True)) == []


async def test_a_turn_whose_conversation_was_taken_over_ends_without_a_word(
    shop: Workshop, caplog: pytest.LogCaptureFixture
) -> None:
    async def lose(arguments: object, call: object) -> str:
        lease = await shop.store.read(lambda tx: tx.leases.get(f"session:{shop.session_id}"))
        assert lease is not None
        await shop.store.write(lambda tx: tx.leases.release(lease))
        return "lost"

    shop.server.script(Say(calls=[Ask("lose", {})]))
    with pytest.raises(LeaseLost):
        await shop.say("go", Echo("lose", does=lose))
    assert [text for _, text in await shop.told()] == ["go", ""]
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()

"""A stop before the start of a turn ends that turn, once, and no other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.agent.agent_fixture import Echo, Workshop, workshop
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
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    async with workshop(tmp_path) as shop:
        yield shop


async def test_a_stop_before_the_claim_ends_the_turn_and_no_later_one(shop: Workshop) -> None:
    async with _open(shop) as runner:
        await _arrive(shop, "one")
        runner.wake()
        assert runner.stop()
        assert await runner.settled() == TurnStopped()
        await _arrive(shop, "two")
        assert await runner.run_pending_turns() == TurnAnswered("ok")
    assert _questions(shop) == ["two"]
    assert shop.heard(TurnStopped) == [TurnStopped()]


@pytest.mark.parametrize("times", [1, 2])
async def test_a_stop_during_the_claim_ends_the_turn_once(shop: Workshop, times: int) -> None:
    store = SlowStore(shop.store)
    async with _open(shop, store=store) as runner:
        await _arrive(shop, "one")
        await _arrive(shop, "two")
        runner.wake()
        await store.committed.wait()
        assert [runner.stop() for _ in range(times)] == [True] * times
        store.resumed.set()
        assert await runner.settled() == TurnAnswered("ok")
    assert _questions(shop) == ["two"]
    turns = await shop.store.read(lambda tx: tx.turns.find(shop.session_id))
    assert sorted(turn.state for turn in turns) == ["answered", "stopped"]
    assert shop.heard(TurnStopped) == [TurnStopped()]


@pytest.mark.parametrize("is_stopped_first", [True, False])
async def test_stop_during_an_empty_claim_does_not_stop_a_later_message(shop: Workshop, is_stopped_first: bool) -> None:
    store = SlowStore(shop.store)
    async with _open(shop, store=store) as runner:
        runner.wake()
        await store.committed.wait()
        if is_stopped_first:
            runner.stop()
        await _arrive(shop, "one")
        runner.wake()
        if not is_stopped_first:
            runner.stop()
        store.resumed.set()
        assert await runner.settled() == (TurnAnswered("ok") if is_stopped_first else TurnStopped())


async def test_a_stop_before_the_files_of_a_message_are_fetched_ends_its_turn(shop: Workshop) -> None:
    async def fetch(pending: PendingAttachments) -> Message:
        raise AssertionError("files of a stopped turn are not fetched")

    notes = (Attachment("f1", "document", "notes.txt"),)
    message = InboxMessage(role="user", parts=(Text("look"),), at=datetime.now(UTC), attachments=notes)
    arrival = make_inbox_arrival(shop.session_id, "test", "look", message, kind="message")
    async with _open(shop, options=RunnerOptions(titled=False, unpack=fetch)) as runner:
        await shop.store.write(lambda tx: tx.inbox.add(arrival))
        runner.wake()
        assert runner.stop()
        assert await runner.settled() == TurnStopped()
    assert _questions(shop) == []
    assert "notes.txt was not downloaded" in str(await shop.told())


async def test_stop_before_a_turn_is_resumed_closes_its_open_tool_calls(shop: Workshop) -> None:
    async def wait(arguments: object, call: object) -> str:
        await asyncio.Event().wait()
        raise AssertionError

    shop.server.script(Say(calls=[Ask("echo", {})]))
    tool = Echo(does=wait)
    async with _open(shop, tool) as runner:
        await _arrive(shop, "one")
        runner.wake()
        await until(lambda: shop.heard(ToolCalled))
    async with _open(shop, tool) as runner:
        runner.wake()
        assert runner.stop()
        assert await runner.settled() == TurnStopped()
    stored = await shop.store.read(lambda tx: tx.messages.load(shop.session_id))
    [result] = stored[-1].message.parts
    assert isinstance(result, ToolResult)
    assert (result.text, result.failed) == (STOPPED, True)


@asynccontextmanager
async def _open(
    shop: Workshop, *tools: Tool, store: Store | None = None, options: RunnerOptions | None = None
) -> AsyncIterator[SessionRunner]:
    async with asyncio.TaskGroup() as jobs:
        runner = SessionRunner(
            store or shop.store,
            shop.session_id,
            shop.agent(*tools),
            shop.around(),
            jobs,
            auxiliary=Auxiliary(shop.calls),
            options=options or RunnerOptions(titled=False),
        )
        yield runner
        await runner.close()


async def _arrive(shop: Workshop, text: str) -> None:
    message = Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
    assert await add_to_inbox(shop.store, shop.session_id, "test", text, message)


def _questions(shop: Workshop) -> list[str]:
    return [received.question for received in shop.server.received]

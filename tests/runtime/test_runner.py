"""Runner of a session as a surface uses it: messages, stop, steering and titles."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.agent.agent_fixture import Echo, Workshop, workshop

from talaria.agent.auxiliary import Auxiliary
from talaria.contracts.tool import Tool
from talaria.core.errors import Refused
from talaria.core.events import TextAdded, ToolCalled, TurnAnswered, TurnStopped
from talaria.core.messages import Message, Text
from talaria.runtime.runner import RunnerOptions, SessionRunner
from talaria.testing.model_server import Ask, Say, Tokens
from talaria.testing.wait import until


@pytest.fixture
async def shop(tmp_path: Path) -> AsyncIterator[Workshop]:
    async with workshop(tmp_path) as shop:
        yield shop


async def test_duplicate_message_is_answered_once(shop: Workshop) -> None:
    async with _open(shop) as runner:
        assert await runner.say(_message("hi"), source="test", external_id="1") == TurnAnswered("ok")
        assert await runner.say(_message("hi"), source="test", external_id="1") is None
    assert len(shop.server.received) == 1


async def test_stop_ends_the_turn_and_the_next_message_is_answered(shop: Workshop) -> None:
    shop.server.script(Say("one two three four five", pause=0.05), Say("fine"))
    async with _open(shop) as runner, asyncio.TaskGroup() as group:
        turn = group.create_task(runner.say(_message("go"), source="test", external_id="1"))
        await _until_event(shop, TextAdded)
        assert runner.stop()
        assert await turn == TurnStopped()
        assert not runner.stop()
        assert await runner.say(_message("and now?"), source="test", external_id="2") == TurnAnswered("fine")


async def test_a_message_joins_the_running_turn(shop: Workshop) -> None:
    resumed = asyncio.Event()

    async def wait(arguments: object, call: object) -> str:
        await resumed.wait()
        return "done"

    shop.server.script(Say(calls=[Ask("echo", {})]), Say("merci"))
    async with _open(shop, Echo(does=wait)) as runner, asyncio.TaskGroup() as group:
        turn = group.create_task(runner.say(_message("go"), source="test", external_id="1"))
        await _until_event(shop, ToolCalled)
        await runner.put(_message("in French"), source="test", external_id="2", steering=True)
        resumed.set()
        assert await turn == TurnAnswered("merci")
    assert shop.server.received[-1].json["messages"][-1]["content"] == "in French"


async def test_a_session_gets_a_title_after_its_first_reply(shop: Workshop) -> None:
    shop.server.script(Say("Take the night train."), Say('"Night train to Vienna."'))
    async with _open(shop, titled=True) as runner:
        await runner.say(_message("How do I get to Vienna?"), source="test", external_id="1")
    session = await shop.store.read(lambda tx: tx.sessions.get(shop.session_id))
    assert session is not None
    assert session.title == "Night train to Vienna"


async def test_message_to_a_session_leased_by_another_worker_is_refused_but_stored(shop: Workshop) -> None:
    lease = await shop.store.write(lambda tx: tx.leases.acquire(f"session:{shop.session_id}", timedelta(minutes=1)))
    assert lease is not None
    async with _open(shop) as runner:
        with pytest.raises(Refused, match="Another process"):
            await runner.say(_message("hi"), source="test", external_id="1")
        await shop.store.write(lambda tx: tx.leases.release(lease))
        assert await runner.run_pending_turns() == TurnAnswered("ok")


async def test_a_long_session_is_summarised_after_the_reply(shop: Workshop) -> None:
    for number in range(9):
        await shop.say(f"fact {number}: " + "word " * 600)
    summary = "The person told nine facts, numbered from zero; each was followed by many words without a meaning."
    shop.server.script(Say("Noted.", usage=Tokens(input=7_000, output=10)), Say(summary), Say("As you say."))
    async with _open(shop) as runner:
        assert await runner.say(_message("and that is all"), source="test", external_id="1") == TurnAnswered("Noted.")
    async with _open(shop) as runner:
        await runner.say(_message("well?"), source="test", external_id="2")
    assert summary in shop.server.received[-1].json["messages"][1]["content"]


async def test_a_closed_runner_starts_no_turn(shop: Workshop) -> None:
    async with _open(shop) as runner:
        await runner.close()
        with pytest.raises(Refused, match="closed"):
            await runner.say(_message("hi"), source="test", external_id="1")
    assert shop.server.received == []
    async with _open(shop) as runner:
        assert await runner.run_pending_turns() == TurnAnswered("ok")


async def test_a_second_stop_changes_nothing(shop: Workshop) -> None:
    shop.server.script(Say("one two three four five", pause=0.05), Say("fine"))
    async with _open(shop) as runner, asyncio.TaskGroup() as group:
        turn = group.create_task(runner.say(_message("go"), source="test", external_id="1"))
        await _until_event(shop, TextAdded)
        await runner.put(_message("and then?"), source="test", external_id="2")
        assert runner.stop()
        assert runner.stop()
        assert await turn == TurnAnswered("fine")
    assert [type(end) for end in (*shop.heard(TurnStopped), *shop.heard(TurnAnswered))] == [TurnStopped, TurnAnswered]


@asynccontextmanager
async def _open(shop: Workshop, *tools: Tool, titled: bool = False) -> AsyncIterator[SessionRunner]:
    auxiliary, options = Auxiliary(shop.calls), RunnerOptions(titled=titled)
    async with asyncio.TaskGroup() as jobs:
        runner = SessionRunner(
            shop.store, shop.session_id, shop.agent(*tools), shop.around(), jobs, auxiliary=auxiliary, options=options
        )
        yield runner
        await runner.close()


async def _until_event(shop: Workshop, kind: type[object]) -> None:
    await until(lambda: shop.heard(kind))


def _message(text: str) -> Message:
    return Message(role="user", parts=(Text(text),), at=datetime.now(UTC))

"""Recorded steps of a turn in the store, and the calls that are known after a crash."""

import asyncio
from datetime import timedelta

import pytest
from tests.contracts.sample_messages import text_message
from tests.contracts.session_leases import claim_session_lease

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.turns import ModelStep, StartedCall, TurnResult
from talaria.core.errors import LeaseLost
from talaria.core.events import TurnAnswered, TurnStopped
from talaria.core.ids import SessionId, new_turn_id
from talaria.core.messages import ToolCall, ToolResult, Usage
from talaria.runtime.turn_log import TurnRecorder
from talaria.runtime.turns import EndedTurn, TurnWork

STEP = ModelStep(model="m", usage=Usage(calls=1, input_tokens=10, output_tokens=5, cost_microdollars=7), seconds=0.1)
CALL = ToolCall("call_0", "look", "{}")


class EndCounter:
    """Counts how often a turn was finished."""

    def __init__(self) -> None:
        self.count = 0

    def finishing(self, tx: Transaction, result: TurnResult) -> EndedTurn:
        tx.named_values.put("test", "ended", "")
        self.count += 1
        return EndedTurn(result.end)


@pytest.fixture
def ends() -> EndCounter:
    return EndCounter()


@pytest.fixture
async def turn(store: Store, ends: EndCounter) -> TurnRecorder:
    turn_id = new_turn_id()

    def begin(tx: Transaction) -> TurnRecorder:
        session = tx.sessions.create(NewSession(source="test")).id
        claim = claim_session_lease(tx, timedelta(minutes=1), session)
        assert claim is not None
        tx.turns.begin(session, turn_id)
        return TurnRecorder(store, claim, TurnWork(turn_id), ends.finishing)

    return await store.write(begin)


async def test_started_call_is_recorded_without_a_result(turn: TurnRecorder) -> None:
    await turn.add([text_message("look", "assistant")], STEP)
    await turn.begin_call(CALL, "the garden")
    assert await turn.read_started_calls() == [StartedCall("call_0", None)]


async def test_ended_call_is_recorded_with_its_result(turn: TurnRecorder) -> None:
    await turn.add([text_message("look", "assistant")], STEP)
    await turn.begin_call(CALL, "the garden")
    await turn.end_call(CALL, ToolResult("call_0", "a heron"))
    assert await turn.read_started_calls() == [StartedCall("call_0", ToolResult("call_0", "a heron"))]


async def test_call_id_of_an_earlier_reply_is_not_matched_to_a_later_reply(turn: TurnRecorder) -> None:
    await turn.add([text_message("look", "assistant")], STEP)
    await turn.begin_call(CALL, "the garden")
    await turn.end_call(CALL, ToolResult("call_0", "a heron"))
    await turn.add([text_message("look again", "assistant")], STEP)
    assert await turn.read_started_calls() == []


async def test_usage_of_each_step_is_added_to_the_session(store: Store, turn: TurnRecorder) -> None:
    await turn.add([text_message("one", "assistant")], STEP)
    await turn.finish(TurnAnswered("two"), text_message("two", "assistant"), STEP)
    session = await store.read(lambda tx: tx.sessions.get(turn.session_id))
    assert session is not None
    assert (session.usage.calls, session.usage.cost_microdollars) == (2, 14)


async def test_a_second_end_changes_nothing(store: Store, turn: TurnRecorder, ends: EndCounter) -> None:
    first = TurnAnswered("done")
    assert await turn.finish(first, text_message("done", "assistant"), STEP) == first
    assert await turn.finish(TurnStopped(), text_message("done", "assistant"), STEP) == first
    assert ends.count == 1
    assert [one.message.text for one in await turn.read_transcript()] == ["done"]
    [stored] = await store.read(lambda tx: tx.turns.find(turn.session_id))
    assert stored.state == "answered"


async def test_nothing_is_written_without_the_lease(store: Store, turn: TurnRecorder, ends: EndCounter) -> None:
    name = f"session:{turn.session_id}"
    lease = await store.read(lambda tx: tx.leases.get(name))
    assert lease is not None
    await store.write(lambda tx: tx.leases.release(lease))
    for write in (
        turn.add([text_message("late")]),
        turn.begin_call(CALL, ""),
        turn.finish(TurnAnswered("late"), text_message("late", "assistant")),
    ):
        with pytest.raises(LeaseLost):
            await write
    assert await turn.read_transcript() == []
    assert ends.count == 0


async def test_messages_are_stored_in_the_transcript_of_the_session(store: Store, turn: TurnRecorder) -> None:
    await turn.add([text_message("one"), text_message("two", "assistant")])
    assert [(one.seq, one.message.text) for one in await turn.read_transcript()] == [(1, "one"), (2, "two")]
    assert turn.session_id == SessionId((await turn.read_transcript())[0].session_id)


async def test_message_of_a_cancelled_write_precedes_the_next_message(turn: TurnRecorder) -> None:
    for number in range(20):
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(turn.add([text_message(f"{number} first " + "x" * 100_000)]))
            await asyncio.sleep(0)
            writing.cancel()
        await turn.add([text_message(f"{number} second")])
    texts = [one.message.text.partition(" x")[0] for one in await turn.read_transcript()]
    assert texts == [f"{number} {which}" for number in range(20) for which in ("first", "second")]

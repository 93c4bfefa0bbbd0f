"""Run events are stored once and in order, after store failures and on any worker."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from tests.runtime.scripted_runner import run_pending_turns

from talaria.api.front_door import ApiCaller
from talaria.api.runs.events import RunCompleted, RunEvent, RunStopped, decode_event, make_stream_name
from talaria.api.runs.recorder import RunRecorder
from talaria.api.runs.run_store import RunStart, begin_run, end_run
from talaria.api.runs.runner import reconcile_run
from talaria.api.runs.turn_links import find_resume_point
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.responses import ApiRun
from talaria.contracts.turns import ModelStep
from talaria.core.errors import StoreUnavailable
from talaria.core.events import (
    ModelCalled,
    TextAdded,
    ToolAnswered,
    ToolCalled,
    TurnAnswered,
    TurnBegan,
    TurnEnd,
    TurnEvent,
)
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Part, Text, ToolCall, ToolResult, Usage
from talaria.runtime.turn_log import TurnRecorder

_CALL = ToolCall("call_1", "terminal", "{}")
_RESULT = ToolResult("call_1", "seen")
_STEP = ModelStep(model="m", usage=Usage(calls=1, input_tokens=5, output_tokens=2), seconds=0.1)
_USED = ModelCalled("m", _STEP.usage, 7, 1000)


def _spoken(*parts: Part) -> Message:
    return Message(role="assistant", parts=parts, at=datetime.now(UTC))


async def _begun(store: Store) -> ApiRun:
    message = Message(role="user", parts=(Text("Go."),), at=datetime.now(UTC))
    return await store.write(lambda tx: begin_run(tx, "run_1", RunStart(message=message), ApiCaller()))


async def _recorder(store: Store, session_id: SessionId) -> RunRecorder:
    cut = await store.read(lambda tx: find_resume_point(tx, session_id))
    return RunRecorder(store, session_id, lambda _tx, _session: False, lambda _tx, _run: None, cut)


async def _told(store: Store) -> list[RunEvent]:
    events = await store.read(lambda tx: tx.events.after(make_stream_name("run_1"), 0))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return [decode_event(event) for event in events]


def _short(told: Sequence[RunEvent]) -> list[str]:
    """Return events by their names, with the words of those that have some."""
    return [f"{one.__struct_config__.tag} {getattr(one, 'text', '')}".strip() for one in told]


def _hear(recorder: RunRecorder, *events: TurnEvent) -> None:
    for event in events:
        recorder.hear(event)


async def _cut_off(store: Store, run: ApiRun, recorder: RunRecorder, *, told: bool) -> None:
    """Take the first half of a turn: words, and a call that is answered; ``told`` says whether events were kept."""

    async def half(turn: TurnRecorder) -> TurnEnd:
        _hear(recorder, TurnBegan(turn.work.turn_id), TextAdded("Let me look."), _USED)
        await turn.add([_spoken(Text("Let me look."), _CALL)], _STEP)
        await turn.begin_call(_CALL, "date")
        _hear(recorder, ToolCalled(_CALL, "terminal: date"))
        if told:
            await recorder.catch_up()
        await turn.end_call(_CALL, _RESULT)
        raise StoreUnavailable("cut off")

    with pytest.raises(StoreUnavailable):
        await run_pending_turns(store, run.session_id, half)


async def _gone_on(store: Store, run: ApiRun, recorder: RunRecorder, *, while_it_runs: bool) -> None:
    """Take the second half of the turn; events are kept meanwhile, or all at once in its end."""

    async def rest(turn: TurnRecorder) -> TurnEnd:
        _hear(recorder, TurnBegan(turn.work.turn_id))
        await turn.add([Message(role="tool", parts=(_RESULT,), at=datetime.now(UTC))])
        _hear(recorder, TextAdded("Se"), TextAdded("en."), _USED)
        if while_it_runs:
            await recorder.catch_up()
        end = TurnAnswered("Seen.")
        await turn.finish(end, _spoken(Text("Seen.")), _STEP)
        recorder.hear(end)
        return end

    await run_pending_turns(store, run.session_id, rest, ended=recorder.take_note)
    await recorder.catch_up()


@pytest.mark.parametrize("while_it_runs", [True, False])
@pytest.mark.parametrize("told", [True, False])
async def test_a_turn_that_was_cut_off_is_reported_whole_and_once(
    store: Store, *, told: bool, while_it_runs: bool
) -> None:
    run = await _begun(store)
    await _cut_off(store, run, await _recorder(store, run.session_id), told=told)
    await _gone_on(store, run, await _recorder(store, run.session_id), while_it_runs=while_it_runs)
    heard = [one for one in _short(await _told(store)) if not one.startswith(("text.delta", "model.used"))]
    assert heard == [
        "run.queued",
        "turn.started",
        "message.completed Let me look.",
        "tool.started",
        "tool.completed",
        "turn.resumed",
        "message.completed Seen.",
        "run.completed Seen.",
    ]
    after = await store.read(lambda tx: tx.runs.get(run.id))
    assert after is not None
    assert after.state == "completed"


async def test_a_replaced_recorder_records_nothing_more(store: Store) -> None:
    run = await _begun(store)
    former = await _recorder(store, run.session_id)
    await _cut_off(store, run, former, told=True)
    following = await _recorder(store, run.session_id)

    async def resume(turn: TurnRecorder) -> TurnEnd:
        _hear(following, TurnBegan(turn.work.turn_id))
        await following.catch_up()
        before = await _told(store)
        _hear(former, TextAdded("I am still here."), ToolAnswered(_RESULT, "terminal", 0.1))
        await former.catch_up()
        assert await _told(store) == before
        end = TurnAnswered("Seen.")
        await turn.finish(end, _spoken(Text("Seen.")), _STEP)
        return end

    await run_pending_turns(store, run.session_id, resume, ended=following.take_note)
    assert "text.delta I am still here." not in _short(await _told(store))


async def test_nothing_is_recorded_after_the_end(store: Store) -> None:
    run = await _begun(store)
    recorder = await _recorder(store, run.session_id)

    async def turn_taken(turn: TurnRecorder) -> TurnEnd:
        _hear(recorder, TurnBegan(turn.work.turn_id), TextAdded("Done."))
        end = TurnAnswered("Done.")
        await turn.finish(end, _spoken(Text("Done.")), _STEP)
        _hear(recorder, TextAdded("late"), TextAdded("r"))
        await recorder.catch_up()
        return end

    await run_pending_turns(store, run.session_id, turn_taken, ended=recorder.take_note)
    assert _short(await _told(store))[-1] == "run.completed Done."


async def test_words_that_come_faster_than_the_store_become_one_event(store: Store) -> None:
    run = await _begun(store)
    recorder = await _recorder(store, run.session_id)

    async def turn_taken(turn: TurnRecorder) -> TurnEnd:
        _hear(recorder, TurnBegan(turn.work.turn_id), *(TextAdded("x") for _ in range(5000)))
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(recorder.keep())
            end = TurnAnswered("x" * 5000)
            await turn.finish(end, _spoken(Text(end.text)), _STEP)
            keeping.cancel()
        return end

    await run_pending_turns(store, run.session_id, turn_taken, ended=recorder.take_note)
    assert _short(await _told(store)).count(f"text.delta {'x' * 5000}") == 1


async def test_a_turn_of_another_caller_is_not_recorded(store: Store) -> None:
    run = await _begun(store)
    recorder = await _recorder(store, run.session_id)

    async def taken(turn: TurnRecorder) -> TurnEnd:
        _hear(recorder, TurnBegan(turn.work.turn_id), TextAdded("Done."))
        await recorder.catch_up()
        end = TurnAnswered("Done.")
        await turn.finish(end, _spoken(Text("Done.")), _STEP)
        recorder.hear(end)
        return end

    await run_pending_turns(store, run.session_id, taken, ended=recorder.take_note)
    before = await _told(store)

    def say(tx: Transaction) -> None:
        begin_run(tx, "run_2", RunStart(message=_spoken(Text("x")), session_id=run.session_id), ApiCaller())

    await store.write(say)
    await store.write(lambda tx: tx.runs.move("run_2", "stopped"))
    await run_pending_turns(store, run.session_id, taken, ended=recorder.take_note)
    assert await _told(store) == before


async def test_a_run_ends_once_even_if_another_worker_thinks_it_is_open(store: Store) -> None:
    run = await _begun(store)
    assert await store.write(lambda tx: end_run(tx, run, RunStopped()))
    await store.write(lambda tx: tx.inbox.settle([item.id for item in tx.inbox.unsettled(run.session_id)]))
    before = await _told(store)
    assert not await store.write(lambda tx: end_run(tx, run, RunCompleted("Late.")))
    assert await store.write(lambda tx: reconcile_run(tx, run)) is None
    assert await _told(store) == before

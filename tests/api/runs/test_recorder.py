"""Run events are stored once and in order, after store failures and on any worker."""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime

import psycopg
import pytest
from tests.runtime.scripted_runner import run_pending_turns
from tests.storage.engines import StoreLocation

from talaria.api.front_door import ApiCaller
from talaria.api.runs.events import RunCompleted, RunEvent, RunStopped, decode_event, make_stream_name
from talaria.api.runs.recorder import RunRecorder
from talaria.api.runs.run_store import RunStart, begin_run, end_run
from talaria.api.runs.runner import reconcile_run
from talaria.api.runs.turn_links import StreamPosition, find_resume_point, has_background_work, link_turn
from talaria.contracts.background_processes import BackgroundProcess, add_process, change_process
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
from talaria.core.ids import SessionId, WorkerId
from talaria.core.messages import Message, Part, Text, ToolCall, ToolResult, Usage
from talaria.core.session_context import SessionContext
from talaria.runtime.completions import report
from talaria.runtime.turn_log import TurnRecorder
from talaria.storage.postgres.connection import PostgresConnection
from talaria.storage.postgres.open import PostgresOptions, open_postgres
from talaria.testing.clock import SettableClock
from talaria.testing.wait import until

_CALL = ToolCall("call_1", "terminal", "{}")
_RESULT = ToolResult("call_1", "seen")
_STEP = ModelStep(model="m", usage=Usage(calls=1, input_tokens=5, output_tokens=2), seconds=0.1)
_USED = ModelCalled("m", _STEP.usage, 7, 1000)


def _assistant_message(*parts: Part) -> Message:
    return Message(role="assistant", parts=parts, at=datetime.now(UTC))


async def _begin(store: Store) -> ApiRun:
    message = Message(role="user", parts=(Text("Go."),), at=datetime.now(UTC))
    return await store.write(lambda tx: begin_run(tx, "run_1", RunStart(message=message), ApiCaller()))


async def _recorder(store: Store, session_id: SessionId) -> RunRecorder:
    cut = await store.read(lambda tx: find_resume_point(tx, session_id))
    return RunRecorder(store, session_id, lambda _tx, _session: False, lambda _tx, _run: None, cut)


async def _stored_events(store: Store) -> list[RunEvent]:
    events = await store.read(lambda tx: tx.events.after(make_stream_name("run_1"), 0))
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    return [decode_event(event) for event in events]


def _summarise(events: Sequence[RunEvent]) -> list[str]:
    """Return the names of events, each followed by its text if it has one."""
    return [f"{one.__struct_config__.tag} {getattr(one, 'text', '')}".strip() for one in events]


def _pass_events(recorder: RunRecorder, *events: TurnEvent) -> None:
    for event in events:
        recorder.handle_event(event)


async def _run_first_half(store: Store, run: ApiRun, recorder: RunRecorder, *, are_stored: bool) -> None:
    """Run a turn until after its first tool call and fail; ``are_stored``: whether its events were stored before."""

    async def first_half(turn: TurnRecorder) -> TurnEnd:
        _pass_events(recorder, TurnBegan(turn.work.turn_id), TextAdded("Let me look."), _USED)
        await turn.add([_assistant_message(Text("Let me look."), _CALL)], _STEP)
        await turn.begin_call(_CALL, "date")
        _pass_events(recorder, ToolCalled(_CALL, "terminal: date"))
        if are_stored:
            await recorder.catch_up()
        await turn.end_call(_CALL, _RESULT)
        raise StoreUnavailable("cut off")

    with pytest.raises(StoreUnavailable):
        await run_pending_turns(store, run.session_id, first_half)


async def _resume_turn(store: Store, run: ApiRun, recorder: RunRecorder, *, while_it_runs: bool) -> None:
    """Run the rest of the turn; its events are stored while it runs, or all at its end."""

    async def second_half(turn: TurnRecorder) -> TurnEnd:
        _pass_events(recorder, TurnBegan(turn.work.turn_id))
        await turn.add([Message(role="tool", parts=(_RESULT,), at=datetime.now(UTC))])
        _pass_events(recorder, TextAdded("Se"), TextAdded("en."), _USED)
        if while_it_runs:
            await recorder.catch_up()
        end = TurnAnswered("Seen.")
        await turn.finish(end, _assistant_message(Text("Seen.")), _STEP)
        recorder.handle_event(end)
        return end

    await run_pending_turns(store, run.session_id, second_half, ended=recorder.take_note)
    await recorder.catch_up()


@pytest.mark.parametrize("while_it_runs", [True, False])
@pytest.mark.parametrize("are_stored", [True, False])
async def test_events_of_an_interrupted_turn_are_stored_completely_and_once(
    store: Store, *, are_stored: bool, while_it_runs: bool
) -> None:
    run = await _begin(store)
    await _run_first_half(store, run, await _recorder(store, run.session_id), are_stored=are_stored)
    await _resume_turn(store, run, await _recorder(store, run.session_id), while_it_runs=while_it_runs)
    summaries = [
        one for one in _summarise(await _stored_events(store)) if not one.startswith(("text.delta", "model.used"))
    ]
    assert summaries == [
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


_IS_BLOCKED = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND wait_event_type = 'Lock'"


async def test_background_work_is_seen_although_it_ends_during_the_look(
    pooled_postgres_location: StoreLocation, clock: SettableClock
) -> None:
    """Another process ends a background process, and reports that, between two statements of the transaction."""
    store = pooled_postgres_location.open_store(clock)
    try:
        session_id = (await _begin(store)).session_id
        process = _make_process(session_id)
        await store.write(lambda tx: add_process(tx, process))
        options = PostgresOptions(pooled_postgres_location.schema, clock=clock)
        with (
            closing(open_postgres(pooled_postgres_location.address, options)) as first,
            closing(open_postgres(pooled_postgres_location.address, options)) as second,
            psycopg.connect(pooled_postgres_location.address, autocommit=True) as raw,
        ):
            assert isinstance(first.connection, PostgresConnection)
            assert isinstance(second.connection, PostgresConnection)
            pid = second.connection.raw.info.backend_pid
            first.connection.begin(write=True)
            first.connection.run("LOCK TABLE inbox IN ACCESS EXCLUSIVE MODE")
            change_process(first.connection.tables, process, state="ended")
            assert report(first.connection.tables, session_id, "process", process.id, "It has ended.")
            async with asyncio.TaskGroup() as group:
                looking = group.create_task(
                    asyncio.to_thread(second.write, lambda tx: has_background_work(tx, session_id))
                )
                await until(lambda: raw.execute(_IS_BLOCKED, (pid,)).fetchone() or looking.done())
                first.connection.commit()
        assert looking.result()
    finally:
        await store.close()


def _make_process(session_id: SessionId) -> BackgroundProcess:
    return BackgroundProcess(
        id="p1", session_id=session_id, command="make", folder="/", files_folder="/none", machine="m", host="h",
        watcher=WorkerId("w"), begun_at=datetime.now(UTC), context=SessionContext(), state="running", notify=True,
    )  # fmt: skip


async def test_end_of_a_turn_waits_for_the_record_of_its_resumption(
    pooled_postgres_location: StoreLocation, clock: SettableClock
) -> None:
    store = pooled_postgres_location.open_store(clock)
    try:
        run = await _begin(store)
        await _run_first_half(store, run, await _recorder(store, run.session_id), are_stored=True)
        point = await store.read(lambda tx: find_resume_point(tx, run.session_id))
        assert point is not None

        def resume(tx: Transaction) -> StreamPosition | None:
            return link_turn(tx, run.session_id, point.turn_id, "new recorder", point)

        options = PostgresOptions(pooled_postgres_location.schema, clock=clock)
        with (
            closing(open_postgres(pooled_postgres_location.address, options)) as first,
            closing(open_postgres(pooled_postgres_location.address, options)) as second,
            psycopg.connect(pooled_postgres_location.address, autocommit=True) as raw,
        ):
            assert isinstance(second.connection, PostgresConnection)
            pid = second.connection.raw.info.backend_pid
            first.connection.begin(write=True)
            assert resume(first.connection.tables) is not None
            async with asyncio.TaskGroup() as group:
                ending = group.create_task(asyncio.to_thread(second.write, resume))
                await until(lambda: raw.execute(_IS_BLOCKED, (pid,)).fetchone() or ending.done())
                first.connection.commit()
        assert _summarise(await _stored_events(store)).count("turn.resumed") == 1
    finally:
        await store.close()


async def test_a_replaced_recorder_records_nothing_more(store: Store) -> None:
    run = await _begin(store)
    former = await _recorder(store, run.session_id)
    await _run_first_half(store, run, former, are_stored=True)
    following = await _recorder(store, run.session_id)

    async def resume(turn: TurnRecorder) -> TurnEnd:
        _pass_events(following, TurnBegan(turn.work.turn_id))
        await following.catch_up()
        before = await _stored_events(store)
        _pass_events(former, TextAdded("I am still here."), ToolAnswered(_RESULT, "terminal", 0.1))
        await former.catch_up()
        assert await _stored_events(store) == before
        end = TurnAnswered("Seen.")
        await turn.finish(end, _assistant_message(Text("Seen.")), _STEP)
        return end

    await run_pending_turns(store, run.session_id, resume, ended=following.take_note)
    assert "text.delta I am still here." not in _summarise(await _stored_events(store))


async def test_no_event_is_recorded_after_the_end_of_a_run(store: Store) -> None:
    run = await _begin(store)
    recorder = await _recorder(store, run.session_id)

    async def take_turn(turn: TurnRecorder) -> TurnEnd:
        _pass_events(recorder, TurnBegan(turn.work.turn_id), TextAdded("Done."))
        end = TurnAnswered("Done.")
        await turn.finish(end, _assistant_message(Text("Done.")), _STEP)
        _pass_events(recorder, TextAdded("late"), TextAdded("r"))
        await recorder.catch_up()
        return end

    await run_pending_turns(store, run.session_id, take_turn, ended=recorder.take_note)
    assert _summarise(await _stored_events(store))[-1] == "run.completed Done."


async def test_text_faster_than_the_store_is_merged_into_one_event(store: Store) -> None:
    run = await _begin(store)
    recorder = await _recorder(store, run.session_id)

    async def take_turn(turn: TurnRecorder) -> TurnEnd:
        _pass_events(recorder, TurnBegan(turn.work.turn_id), *(TextAdded("x") for _ in range(5000)))
        async with asyncio.TaskGroup() as group:
            storing = group.create_task(recorder.keep())
            end = TurnAnswered("x" * 5000)
            await turn.finish(end, _assistant_message(Text(end.text)), _STEP)
            storing.cancel()
        return end

    await run_pending_turns(store, run.session_id, take_turn, ended=recorder.take_note)
    assert _summarise(await _stored_events(store)).count(f"text.delta {'x' * 5000}") == 1


async def test_turn_of_another_run_is_not_recorded(store: Store) -> None:
    run = await _begin(store)
    recorder = await _recorder(store, run.session_id)

    async def take_turn(turn: TurnRecorder) -> TurnEnd:
        _pass_events(recorder, TurnBegan(turn.work.turn_id), TextAdded("Done."))
        await recorder.catch_up()
        end = TurnAnswered("Done.")
        await turn.finish(end, _assistant_message(Text("Done.")), _STEP)
        recorder.handle_event(end)
        return end

    await run_pending_turns(store, run.session_id, take_turn, ended=recorder.take_note)
    before = await _stored_events(store)

    def begin_second_run(tx: Transaction) -> None:
        begin_run(tx, "run_2", RunStart(message=_assistant_message(Text("x")), session_id=run.session_id), ApiCaller())

    await store.write(begin_second_run)
    await store.write(lambda tx: tx.runs.move("run_2", "stopped"))
    await run_pending_turns(store, run.session_id, take_turn, ended=recorder.take_note)
    assert await _stored_events(store) == before


async def test_a_run_ends_once_even_if_another_worker_thinks_it_is_open(store: Store) -> None:
    run = await _begin(store)
    assert await store.write(lambda tx: end_run(tx, run, RunStopped()))
    await store.write(lambda tx: tx.inbox.settle([item.id for item in tx.inbox.list_unsettled(run.session_id)]))
    before = await _stored_events(store)
    assert not await store.write(lambda tx: end_run(tx, run, RunCompleted("Late.")))
    assert await store.write(lambda tx: reconcile_run(tx, run)) is None
    assert await _stored_events(store) == before

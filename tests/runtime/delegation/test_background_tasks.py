"""Background tasks: started once, run by one process, reported once."""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import structs
from tests.commands.command_fixture import Desk, open_desk
from tests.runtime.delegation.delegating_model import Company, hand_on, result, until_stored, woken
from tests.storage.slow_store import SlowStore
from tests.tools.tool_calls import call_from

from talaria.contracts.delegation import ChildTask, DelegatedTask, DelegationResult
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.tool import Call
from talaria.core.events import TurnAnswered
from talaria.core.ids import SessionId, WorkerId, new_worker_id
from talaria.core.session_context import SessionContext
from talaria.runtime.delegation.background import Background
from talaria.runtime.delegation.task_store import Delegation, ask_to_stop, list_background, queue_in_background
from talaria.testing.model_server import ModelServer, Say
from talaria.testing.wait import until

DONE = "This message is automatic, not from the person. Your background work reports:"


def calling(desk: Desk) -> Call:
    """Return a call of the conversation that is open."""
    here = desk.active_session.session_id
    call = call_from(desk.active_session.chat.workspace.folder, session_id=here)
    return structs.replace(call, context=SessionContext(session_id=here, turn_id="turn-1"))


async def hand_over(desk: Desk, *goals: str, background: bool = True) -> DelegationResult:
    """Hand tasks on as the tool does."""
    delegator = desk.active_session.chat.delegator
    assert delegator is not None
    return await delegator.delegate([DelegatedTask(goal) for goal in goals], calling(desk), background=background)


async def going_on(desk: Desk) -> list[Delegation]:
    return await desk.application.store.read(list_background)


async def test_a_handle_comes_at_once_and_the_result_wakes_the_conversation(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        begun = [hand_on("one", "two", background=True), Say("begun")]
        script = {"go": begun, "one": Say("first"), "two": Say("second"), DONE: Say("told")}
        company = Company(server, script, gates=("one",))
        assert await desk.say("go") == TurnAnswered("begun")
        [one] = await going_on(desk)
        assert f"{one.handle} is running in the background" in await result(desk)
        company.gates["one"].set()
        told = await woken(desk)
        assert f"{one.handle} is done.\n\n## 1: done\nfirst\n\n## 2: done\nsecond" in told
        assert (await desk.transcript())[-1] == ("assistant", "told")
        assert await going_on(desk) == []


async def test_where_the_door_cannot_be_woken_it_is_waited_for_and_said(tmp_path: Path) -> None:
    deaf = SessionContext(async_delivery=False)
    async with ModelServer() as server:
        script = {"go": [hand_on("one", background=True), Say("done")], "one": Say("first")}
        async with open_desk(tmp_path, server, context=deaf) as desk:
            Company(server, script)
            await desk.say("go")
            assert (await result(desk)).startswith("first\n\n(Background tasks can't report here")
            assert await going_on(desk) == []
            here = desk.active_session.session_id
        async with open_desk(tmp_path, server, resume=here) as desk:
            Company(server, {"again": [hand_on("two", background=True), Say("begun")], "two": Say("second")})
            await desk.say("again")
            assert "is running in the background" in await result(desk)
            assert "second" in await woken(desk)


async def test_a_call_that_is_made_again_begins_nothing_again(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        company = Company(server, {"one": Say("first")}, gates=("one",))
        first = await hand_over(desk, "one")
        assert await hand_over(desk, "one") == first
        assert len(await going_on(desk)) == 1
        company.gates["one"].set()
        await until_stored(desk, lambda tx: tx.completions.waiting() == [desk.active_session.session_id])
        assert await hand_over(desk, "one") == first
        assert await going_on(desk) == []
        assert company.asked.count("one") == 1


async def test_of_two_processes_one_resumes_the_task(tmp_path: Path) -> None:
    async with ModelServer() as server, AsyncExitStack() as stack:
        desk = await stack.enter_async_context(open_desk(tmp_path, server))
        company = Company(server, {"one": Say("first")}, gates=("one",))
        other = await stack.enter_async_context(open_desk(tmp_path, server, resume=desk.active_session.session_id))
        await hand_over(desk, "one")
        await server.arrived()
        [one] = await going_on(desk)
        assert one.worker == desk.application.background_role.worker != other.application.background_role.worker
        company.gates["one"].set()
        assert "first" in await woken(desk)
        assert company.asked.count("one") == 1


async def test_tasks_of_an_ended_process_are_resumed_where_allowed(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        company = Company(server, {"one": Say("first"), "two": Say("second")}, gates=("one", "two"))
        desk.application.background_role.worker = dead = _dead_worker()
        await hand_over(desk, "one")
        await server.arrived()
        [one] = await going_on(desk)
        assert one.worker == dead
        company.gates["one"].set()
        assert "first" in await woken(desk)


async def test_what_belongs_to_a_conversation_that_is_deleted_is_forgotten(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        company = Company(server, {"one": Say("first")}, gates=("one",))
        await desk.say("hi")
        before = desk.active_session.session_id
        await hand_over(desk, "one")
        await server.arrived(2)
        await desk.use("/branch")
        await desk.application.store.write(lambda tx: tx.sessions.delete(before))
        company.gates["one"].set()
        await until_stored(desk, lambda tx: not list_background(tx))


async def test_enough_is_enough(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server, "[delegation]\nbackground = 1\n") as desk:
        Company(server, {"go": [hand_on("two", background=True), Say("done")]}, gates=("one",))
        await hand_over(desk, "one")
        await desk.say("go")
        [one] = await going_on(desk)
        assert f"Too many background tasks are running: {one.handle}." in await result(desk)


@pytest.mark.slow
async def test_what_is_stopped_while_a_child_is_about_to_begin_is_stopped(tmp_path: Path) -> None:
    async with ModelServer() as server, open_desk(tmp_path, server) as desk:
        Company(server, {}, gates=("one",))
        for _ in range(5):
            handed = await hand_over(desk, "one")
            await asyncio.sleep(0)
            await desk.use(f"/background stop {handed.handle}")
            await until_stored(desk, lambda tx: not list_background(tx) and not tx.turns.find(running=True))
            await desk.application.store.write(forget_delegations)
        assert await desk.application.store.read(lambda tx: tx.completions.waiting()) == []


async def test_a_task_that_is_stopped_while_its_lease_is_acquired_is_removed_at_once(store: Store) -> None:
    session = await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))
    worker, began = new_worker_id(), datetime.now(UTC)
    requested = Delegation(
        key="call",
        session_id=session.id,
        children=(ChildTask(DelegatedTask("one")),),
        surface="test",
        folder="/",
        began=began,
        worker=worker,
    )
    handle = await store.write(lambda tx: queue_in_background(tx, requested))
    slow = SlowStore(store)
    async with asyncio.TaskGroup() as jobs:
        background = Background(slow, worker, jobs, StoppedHost())
        assert await background.look() == 1
        await slow.committed.wait()
        await store.write(lambda tx: ask_to_stop(tx, session.id, handle))
        await background.look()
        slow.resumed.set()
        await until(background.look)
    assert await store.read(list_background) == []


class StoppedHost:
    """The host of a task that is stopped before its children begin."""

    async def carry(self, one: Delegation) -> tuple[ChildTask, ...]:
        raise AssertionError("it was stopped before")

    def tell(self, one: Delegation, children: tuple[ChildTask, ...]) -> str:
        raise AssertionError("what was stopped is not reported")

    def end(self, session_id: SessionId) -> None:
        raise AssertionError("it has no child session")


def forget_delegations(tx: Transaction) -> None:
    for row in list(tx.archive.rows("delegated_tasks")):
        tx.delegated_tasks.delete(str(row[0]))


def _dead_worker() -> WorkerId:
    """Return the id of a process of this machine that is gone."""
    machine, _, name = new_worker_id().rpartition(":")
    return WorkerId(f"{machine.rpartition(':')[0]}:{2**22 - 7}:{name}")

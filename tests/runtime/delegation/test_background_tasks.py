"""Background tasks: started once, run by one process, reported once."""

import asyncio
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec import structs
from tests.commands.command_fixture import ChatClient, open_chat_client
from tests.runtime.delegation.delegating_model import (
    DelegatingModel,
    delegate_tasks,
    result,
    run_report_turn,
    until_stored,
)
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


def tool_call(client: ChatClient) -> Call:
    """Return a tool call of the open session."""
    here = client.active_session.session_id
    call = call_from(client.active_session.chat.workspace.folder, session_id=here)
    return structs.replace(call, context=SessionContext(session_id=here, turn_id="turn-1"))


async def delegate(client: ChatClient, *goals: str, background: bool = True) -> DelegationResult:
    """Delegate tasks as the tool does."""
    delegator = client.active_session.chat.delegator
    assert delegator is not None
    return await delegator.delegate([DelegatedTask(goal) for goal in goals], tool_call(client), background=background)


async def running_tasks(client: ChatClient) -> list[Delegation]:
    return await client.application.store.read(list_background)


async def test_background_task_returns_a_handle_and_its_result_starts_a_turn(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        replies = [delegate_tasks("one", "two", background=True), Say("begun")]
        script = {"go": replies, "one": Say("first"), "two": Say("second"), DONE: Say("told")}
        delegating_model = DelegatingModel(server, script, gates=("one",))
        assert await client.say("go") == TurnAnswered("begun")
        [one] = await running_tasks(client)
        assert f"{one.handle} is running in the background" in await result(client)
        delegating_model.gates["one"].set()
        reported = await run_report_turn(client)
        assert f"{one.handle} is done.\n\n## 1: done\nfirst\n\n## 2: done\nsecond" in reported
        assert (await client.transcript())[-1] == ("assistant", "told")
        assert await running_tasks(client) == []


async def test_surface_without_async_delivery_waits_for_background_tasks(tmp_path: Path) -> None:
    synchronous = SessionContext(async_delivery=False)
    async with ModelServer() as server:
        script = {"go": [delegate_tasks("one", background=True), Say("done")], "one": Say("first")}
        async with open_chat_client(tmp_path, server, context=synchronous) as client:
            DelegatingModel(server, script)
            await client.say("go")
            assert (await result(client)).startswith("first\n\n(Background tasks can't report here")
            assert await running_tasks(client) == []
            here = client.active_session.session_id
        async with open_chat_client(tmp_path, server, resume=here) as client:
            DelegatingModel(
                server, {"again": [delegate_tasks("two", background=True), Say("begun")], "two": Say("second")}
            )
            await client.say("again")
            assert "is running in the background" in await result(client)
            assert "second" in await run_report_turn(client)


async def test_repeated_call_does_not_start_its_task_again(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        delegating_model = DelegatingModel(server, {"one": Say("first")}, gates=("one",))
        first = await delegate(client, "one")
        assert await delegate(client, "one") == first
        assert len(await running_tasks(client)) == 1
        delegating_model.gates["one"].set()
        await until_stored(client, lambda tx: tx.completions.waiting() == [client.active_session.session_id])
        assert await delegate(client, "one") == first
        assert await running_tasks(client) == []
        assert delegating_model.tasks.count("one") == 1


async def test_background_task_runs_in_only_one_of_two_processes(tmp_path: Path) -> None:
    async with ModelServer() as server, AsyncExitStack() as stack:
        client = await stack.enter_async_context(open_chat_client(tmp_path, server))
        delegating_model = DelegatingModel(server, {"one": Say("first")}, gates=("one",))
        other = await stack.enter_async_context(
            open_chat_client(tmp_path, server, resume=client.active_session.session_id)
        )
        await delegate(client, "one")
        await server.arrived()
        [one] = await running_tasks(client)
        assert one.worker == client.application.background_role.worker != other.application.background_role.worker
        delegating_model.gates["one"].set()
        assert "first" in await run_report_turn(client)
        assert delegating_model.tasks.count("one") == 1


async def test_background_task_of_an_ended_process_is_resumed(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        delegating_model = DelegatingModel(server, {"one": Say("first"), "two": Say("second")}, gates=("one", "two"))
        client.application.background_role.worker = dead = _dead_worker()
        await delegate(client, "one")
        await server.arrived()
        [one] = await running_tasks(client)
        assert one.worker == dead
        delegating_model.gates["one"].set()
        assert "first" in await run_report_turn(client)


async def test_background_task_of_a_deleted_session_is_removed(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        delegating_model = DelegatingModel(server, {"one": Say("first")}, gates=("one",))
        await client.say("hi")
        before = client.active_session.session_id
        await delegate(client, "one")
        await server.arrived(2)
        await client.use("/branch")
        await client.application.store.write(lambda tx: tx.sessions.delete(before))
        delegating_model.gates["one"].set()
        await until_stored(client, lambda tx: not list_background(tx))


async def test_background_tasks_over_the_limit_are_refused(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server, "[delegation]\nbackground = 1\n") as client:
        DelegatingModel(server, {"go": [delegate_tasks("two", background=True), Say("done")]}, gates=("one",))
        await delegate(client, "one")
        await client.say("go")
        [one] = await running_tasks(client)
        assert f"Too many background tasks are running: {one.handle}." in await result(client)


@pytest.mark.slow
async def test_background_task_stopped_while_its_child_starts_is_ended(tmp_path: Path) -> None:
    async with ModelServer() as server, open_chat_client(tmp_path, server) as client:
        DelegatingModel(server, {}, gates=("one",))
        for _ in range(5):
            delegated = await delegate(client, "one")
            await asyncio.sleep(0)
            await client.use(f"/background stop {delegated.handle}")
            await until_stored(client, lambda tx: not list_background(tx) and not tx.turns.find(running=True))
            await client.application.store.write(forget_delegations)
        assert await client.application.store.read(lambda tx: tx.completions.waiting()) == []


async def test_background_task_stopped_while_its_lease_is_acquired_is_removed(store: Store) -> None:
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
        raise AssertionError("the task was stopped before")

    def format_report(self, one: Delegation, children: tuple[ChildTask, ...]) -> str:
        raise AssertionError("a stopped task is not reported")

    def end(self, session_id: SessionId) -> None:
        raise AssertionError("the task has no child session")


def forget_delegations(tx: Transaction) -> None:
    for row in list(tx.archive.rows("delegated_tasks")):
        tx.delegated_tasks.delete(str(row[0]))


def _dead_worker() -> WorkerId:
    """Return the id of a process of this machine that is gone."""
    machine, _, name = new_worker_id().rpartition(":")
    return WorkerId(f"{machine.rpartition(':')[0]}:{2**22 - 7}:{name}")

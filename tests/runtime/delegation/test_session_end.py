"""A closed session ends its background work, even if a process is killed at that moment."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.commands.command_fixture import open_chat_client
from tests.tools.process.process_fixture import dead_worker, process_on_another_machine, start_sleeping_process

from talaria.contracts.background_processes import add_process, change_process, list_processes
from talaria.contracts.delegation import ChildTask, DelegatedTask
from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import NewSession
from talaria.core.ids import SessionId
from talaria.core.os_processes import is_running
from talaria.runtime.delegation.task_store import (
    Delegation,
    begin_child,
    end_background,
    list_background,
    queue_in_background,
    settle_child,
    start_in_background,
)
from talaria.testing.clock import NOON
from talaria.testing.model_server import ModelServer
from talaria.testing.wait import LIMIT, until


async def test_tasks_to_end_with_a_session_are_ended_by_the_next_process(tmp_path: Path) -> None:
    gone = dead_worker()
    async with ModelServer() as server:
        async with open_chat_client(tmp_path, server, tools=()) as client:  # no task watches processes here
            await client.say("hi")
            left, store = client.active_session.session_id, client.application.store
            process = await start_sleeping_process(client.application.processes, left)
            await client.use("/new")
            await store.write(lambda tx: change_process(tx, process, watcher=gone))
            (stored,) = await store.read(list_processes)
            assert stored.is_alive
            assert stored.ended_by == "conversation"
        assert is_running(process.pid)
        async with open_chat_client(tmp_path, server) as client, AsyncExitStack() as stack, asyncio.timeout(LIMIT):
            client.application.processes.supervise_within(client.active_session.jobs, stack)
            await until(lambda: not is_running(process.pid))


@pytest.fixture
async def session_id(store: Store) -> SessionId:
    return (await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))).id


def delegation(session_id: SessionId, key: str, said: str = "") -> Delegation:
    children = (ChildTask(DelegatedTask("one")),)
    return Delegation(
        key=key, session_id=session_id, children=children, surface="test", folder="/", began=NOON, said=said
    )


async def test_session_end_stops_tasks_of_the_agent_but_not_tasks_of_a_person(
    store: Store, session_id: SessionId
) -> None:
    await store.write(lambda tx: start_in_background(tx, delegation(session_id, "call")))
    await store.write(lambda tx: queue_in_background(tx, delegation(session_id, "wish", said="please")))
    await store.write(lambda tx: end_background(tx, session_id))
    found = await store.read(lambda tx: list_background(tx, session_id))
    assert {one.said: one.stopped for one in found} == {"": True, "please": False}


async def test_processes_of_a_child_session_end_when_its_answer_is_stored(store: Store, session_id: SessionId) -> None:
    await store.write(lambda tx: start_in_background(tx, delegation(session_id, "call")))
    child = await store.write(lambda tx: begin_child(tx, "call", 0, "one"))
    assert child is not None
    await store.write(lambda tx: add_process(tx, process_on_another_machine(child)))
    await store.write(lambda tx: settle_child(tx, "call", 0, "done", "its result will be posted"))
    (stored,) = await store.read(list_processes)
    assert stored.ended_by == "conversation"

"""A conversation that is left for good: what goes on in its background ends, whoever is killed right then."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.commands.desk import open_desk
from tests.tools.supervision import dead_worker, elsewhere, sleeping

from talaria.contracts.delegation import Child, Task
from talaria.contracts.processes import add_process, change_process, list_processes
from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import NewSession
from talaria.core.ids import SessionId
from talaria.core.system_processes import is_there
from talaria.sessions.delegation import Delegation, begin_beside, begin_child, in_background, put_beside, settle_child
from talaria.sessions.leaving import end_background
from talaria.testing.clock import NOON
from talaria.testing.model_server import ModelServer


async def test_what_a_new_conversation_wanted_to_end_is_ended_by_whoever_starts_next(tmp_path: Path) -> None:
    gone = dead_worker()
    async with ModelServer() as server:
        async with open_desk(tmp_path, server, tools=()) as desk:  # where nobody watches processes
            await desk.say("hi")
            left, store = desk.seat.session_id, desk.house.store
            process = await sleeping(desk.house.processes, left)
            await desk.use("/new")
            await store.write(lambda tx: change_process(tx, process, watcher=gone))
            (kept,) = await store.read(list_processes)
            assert kept.is_alive
            assert kept.ended_by == "conversation"
        assert is_there(process.pid)
        async with open_desk(tmp_path, server) as desk, AsyncExitStack() as stack, asyncio.timeout(30):
            desk.house.processes.attend(desk.seat.jobs, stack)
            while is_there(process.pid):  # noqa: ASYNC110 (it ends when it does)
                await asyncio.sleep(0.01)


@pytest.fixture
async def session_id(store: Store) -> SessionId:
    return (await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))).id


def handed_on(session_id: SessionId, key: str, said: str = "") -> Delegation:
    children = (Child(Task("one")),)
    return Delegation(
        key=key, session_id=session_id, children=children, surface="test", folder="/", began=NOON, said=said
    )


async def test_what_the_agent_has_handed_on_is_to_stop_and_what_a_person_asked_for_is_not(
    store: Store, session_id: SessionId
) -> None:
    await store.write(lambda tx: begin_beside(tx, handed_on(session_id, "call")))
    await store.write(lambda tx: put_beside(tx, handed_on(session_id, "wish", said="please")))
    await store.write(lambda tx: end_background(tx, session_id))
    found = await store.read(lambda tx: in_background(tx, session_id))
    assert {one.said: one.stopped for one in found} == {"": True, "please": False}


async def test_what_a_child_has_started_is_to_end_when_its_answer_is_kept(store: Store, session_id: SessionId) -> None:
    await store.write(lambda tx: begin_beside(tx, handed_on(session_id, "call")))
    child = await store.write(lambda tx: begin_child(tx, "call", 0, "one"))
    assert child is not None
    await store.write(lambda tx: add_process(tx, elsewhere(child)))
    await store.write(lambda tx: settle_child(tx, "call", 0, "done", "it is done"))
    (kept,) = await store.read(list_processes)
    assert kept.ended_by == "conversation"

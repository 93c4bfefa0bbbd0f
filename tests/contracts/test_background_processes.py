"""Background processes in the store: stored, found and changed concurrently, on every engine."""

import asyncio

import pytest
from msgspec import structs

from talaria.contracts.background_processes import (
    BackgroundProcess,
    add_process,
    change_process,
    describe_outcome,
    find_process,
    forget_process,
    list_process_summaries,
    list_processes,
    read_process,
)
from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import NewSession
from talaria.core.errors import Ambiguous, NotFound, StoreConflict
from talaria.core.ids import SessionId, WorkerId
from talaria.core.session_context import SessionContext
from talaria.testing.clock import NOON

ONE = BackgroundProcess(
    id="pone1",
    session_id=SessionId("s1"),
    command="make",
    folder="/",
    files_folder="/tmp/none",
    machine="m",
    host="h",
    watcher=WorkerId("w"),
    begun_at=NOON,
    context=SessionContext(chat_id="7"),
    state="running",
    pid=42,
)
TWO = structs.replace(ONE, id="pone2", session_id=SessionId("s2"))


@pytest.fixture(autouse=True)
async def stored_processes(store: Store) -> None:
    for process in (ONE, TWO):
        await store.write(lambda tx, process=process: add_process(tx, process))  # type: ignore[misc]


async def test_stored_process_is_read_back_and_listed_by_session(store: Store) -> None:
    assert await store.read(lambda tx: read_process(tx, ONE)) == ONE
    assert await store.read(lambda tx: list_processes(tx, TWO.session_id)) == [TWO]
    assert await store.read(list_processes) == [ONE, TWO]


async def test_duplicate_process_id_is_refused(store: Store) -> None:
    with pytest.raises(StoreConflict):
        await store.write(lambda tx: add_process(tx, structs.replace(ONE, session_id=SessionId("s3"))))


async def test_process_is_found_by_an_unambiguous_id_prefix(store: Store) -> None:
    assert await store.read(lambda tx: find_process(tx, "pone1")) == ONE
    with pytest.raises(Ambiguous, match="pone1, pone2"):
        await store.read(lambda tx: find_process(tx, "pone"))
    for prefix in ("", "px"):
        with pytest.raises(NotFound):
            await store.read(lambda tx, prefix=prefix: find_process(tx, prefix))  # type: ignore[misc]


async def test_concurrent_changes_of_one_process_are_all_stored(store: Store) -> None:
    async def change(**changes: object) -> None:
        await store.write(lambda tx: change_process(tx, ONE, **changes))

    await asyncio.gather(change(scanned=5), change(ended_by="person"), change(written="call-1"))
    changed = await store.read(lambda tx: read_process(tx, ONE))
    assert changed == structs.replace(ONE, scanned=5, ended_by="person", written="call-1")


async def test_deleted_process_cannot_be_changed(store: Store) -> None:
    await store.write(lambda tx: forget_process(tx, ONE))
    assert await store.write(lambda tx: change_process(tx, ONE, scanned=5)) is None
    assert await store.read(list_processes) == [TWO]


async def test_summaries_list_running_processes_and_mark_those_of_deleted_sessions(store: Store) -> None:
    await store.write(lambda tx: tx.sessions.create(NewSession(source="test", id=ONE.session_id)))
    await store.write(lambda tx: add_process(tx, structs.replace(ONE, id="pover", state="ended")))
    summaries = await store.read(list_process_summaries)
    assert {(summary.id, summary.ended_by) for summary in summaries} == {("pone1", ""), ("pone2", "conversation")}


def test_process_outcome_is_described_as_text() -> None:
    ended = structs.replace(ONE, state="ended", ended_at=NOON, code=137)
    assert describe_outcome(ended) == "ended with exit code 137 (SIGKILL) after 0 s"
    assert describe_outcome(structs.replace(ended, state="lost")).startswith("disappeared without an exit code")

"""Stored background processes, delegated tasks and forwarded updates."""

from msgspec import structs

from talaria.contracts.store import Transaction
from talaria.contracts.stores.turns import DelegatedTaskRow, ProcessRow
from talaria.core.ids import SessionId, WorkerId

ONE, TWO = SessionId("one"), SessionId("two")


def test_a_process_is_added_once_and_replaced_by_version(mine: Transaction, theirs: Transaction) -> None:
    row = ProcessRow(id="p1", session_id=ONE, alive=True, body="{}")
    assert mine.processes.add(row)
    assert not theirs.processes.add(row)
    read = mine.processes.get("p1")
    assert read == structs.replace(row, version=1)
    ended = structs.replace(read, alive=False, body="over")
    assert theirs.processes.replace(ended)
    assert not mine.processes.replace(ended)
    assert mine.processes.get("p1") == structs.replace(ended, version=2)
    mine.processes.delete("p1")
    assert mine.processes.get("p1") is None


def test_processes_are_found_by_session_liveness_and_id_prefix(mine: Transaction) -> None:
    for name, session_id, alive in (("ab", ONE, True), ("aa", ONE, False), ("b", TWO, True)):
        mine.processes.add(ProcessRow(id=name, session_id=session_id, alive=alive, body=""))
    assert [row.id for row in mine.processes.find()] == ["aa", "ab", "b"]
    assert [row.id for row in mine.processes.find(ONE)] == ["aa", "ab"]
    assert [row.id for row in mine.processes.find(alive=True)] == ["ab", "b"]
    assert [row.id for row in mine.processes.find(ONE, alive=True)] == ["ab"]
    assert [row.id for row in mine.processes.with_prefix("a")] == ["aa", "ab"]
    assert [row.id for row in mine.processes.with_prefix("%")] == []


def test_delegated_tasks_are_found_by_key_session_and_kind(mine: Transaction) -> None:
    for key, session_id, background in (("k2", ONE, True), ("k1", ONE, True), ("k3", ONE, False), ("k4", TWO, True)):
        mine.delegated_tasks.put(DelegatedTaskRow(key=key, session_id=session_id, background=background, body="old"))
    mine.delegated_tasks.put(DelegatedTaskRow(key="k1", session_id=ONE, background=True, body="new"))
    assert mine.delegated_tasks.get("k1") == DelegatedTaskRow(key="k1", session_id=ONE, background=True, body="new")
    assert [row.key for row in mine.delegated_tasks.in_background()] == ["k1", "k2", "k4"]
    assert [row.key for row in mine.delegated_tasks.of_session(ONE, background=True)] == ["k1", "k2"]
    assert [row.key for row in mine.delegated_tasks.of_session(ONE, background=False)] == ["k3"]
    mine.delegated_tasks.delete("k3")
    assert mine.delegated_tasks.get("k3") is None


def test_forwarded_updates_are_claimed_once_by_their_worker(mine: Transaction, theirs: Transaction) -> None:
    here, there = WorkerId("machine:1:a"), WorkerId("machine:2:b")
    mine.forwarded_updates.add(there, ONE, "other")
    for number in range(3):
        mine.forwarded_updates.add(here, ONE, str(number))
    assert mine.forwarded_updates.workers() == [here, there]
    assert sorted(theirs.forwarded_updates.take(here)) == ["0", "1", "2"]
    assert mine.forwarded_updates.take(here) == []
    assert mine.forwarded_updates.workers() == [there]

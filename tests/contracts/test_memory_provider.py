"""The contract of memory providers, on the built-in files and on an example provider."""

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from talaria.contracts.memory import MemoryAccount, MemoryEntry, MemoryKind, MemoryProvider, MemorySource
from talaria.contracts.stores.sessions import Viewer
from talaria.core.errors import ToolFailed
from talaria.tools.memory.notebook import open_memory

HERE = MemorySource(surface="telegram", session="s1")
OWNER, ALICE, BOB = Viewer(), Viewer("alice"), Viewer("bob")
IN_GROUP, BOB_IN_GROUP, OTHER_GROUP = Viewer("alice", "chat/1"), Viewer("bob", "chat/1"), Viewer("alice", "chat/2")


_ONE = "WHERE kind = ? AND text = ? AND audience = ? AND (owner = ? OR (audience != '' AND kind = 'memory'))"


def _key(viewer: Viewer, entry: MemoryEntry) -> tuple[str, str, str, str]:
    return entry.kind, entry.text, viewer.audience, viewer.owner


class DatabaseMemory:
    """An example of a provider: entries in a database. Implements `MemoryProvider`."""

    def __init__(self, account: MemoryAccount) -> None:
        self._path = account.folder / account.options.get("file", "memory.db")
        self._can_rewrite = account.options.get("rewrite") != "no"
        self._run("CREATE TABLE IF NOT EXISTS entry (owner, audience, kind, text, at, surface, session)")

    def entries(self, viewer: Viewer) -> Sequence[MemoryEntry]:
        rows = self._run(
            "SELECT kind, text, owner, audience, at, surface, session FROM entry WHERE audience = ? AND "
            "(owner = ? OR (audience != '' AND kind = 'memory')) ORDER BY kind, rowid",
            viewer.audience, viewer.owner,
        )  # fmt: skip
        return [
            MemoryEntry(
                kind=row[0], text=row[1], owner=row[2], audience=row[3], at=datetime.fromisoformat(row[4]),
                source=MemorySource(surface=row[5], session=row[6]),
            )
            for row in rows
        ]  # fmt: skip

    def add(self, viewer: Viewer, kind: MemoryKind, text: str, source: MemorySource) -> None:
        if any(one.kind == kind and one.text == text for one in self.entries(viewer)):
            return
        values = (viewer.owner, viewer.audience, kind, text, datetime.now(UTC).isoformat(), source.surface)
        self._run("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?)", *values, source.session)

    def replace(self, viewer: Viewer, entry: MemoryEntry, text: str, source: MemorySource) -> None:
        if not any(one.id == entry.id for one in self.entries(viewer)):
            raise ToolFailed("the entry is gone")
        changes = "text = ?, at = ?, surface = ?, session = ?"
        now = datetime.now(UTC).isoformat()
        self._run(f"UPDATE entry SET {changes} {_ONE}", text, now, source.surface, source.session, *_key(viewer, entry))

    def remove(self, viewer: Viewer, entry: MemoryEntry) -> None:
        self._run(f"DELETE FROM entry {_ONE}", *_key(viewer, entry))

    @property
    def can_rewrite(self) -> bool:
        return self._can_rewrite

    def rewrite(
        self, viewer: Viewer, kind: MemoryKind, before: Sequence[MemoryEntry], after: Sequence[MemoryEntry]
    ) -> None:
        current = [one for one in self.entries(viewer) if one.kind == kind]
        if [one.text for one in current] != [one.text for one in before]:
            raise ToolFailed("the memory was changed meanwhile")
        for entry in current:
            self.remove(viewer, entry)
        for entry in after:
            at = (entry.at or datetime.now(UTC)).isoformat()
            values = (viewer.owner, viewer.audience, kind, entry.text, at, entry.source.surface, entry.source.session)
            self._run("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?)", *values)

    def people(self) -> Sequence[str]:
        return [row[0] for row in self._run("SELECT DISTINCT owner FROM entry WHERE owner != '' AND audience = ''")]

    def _run(self, statement: str, *values: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._path)) as database, database:
            return database.execute(statement, values).fetchall()


@pytest.fixture(params=[open_memory, DatabaseMemory], ids=["files", "example"])
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryProvider:
    opening: Callable[[MemoryAccount], MemoryProvider] = request.param
    return opening(MemoryAccount(folder=tmp_path))


def texts(provider: MemoryProvider, viewer: Viewer) -> list[tuple[str, str]]:
    return [(one.kind, one.text) for one in provider.entries(viewer)]


def test_entries_are_read_back_with_kind_time_source_and_owner(provider: MemoryProvider) -> None:
    assert provider.entries(ALICE) == []
    before = datetime.now(UTC)
    provider.add(ALICE, "memory", "A note.", HERE)
    provider.add(ALICE, "user", "Likes tea.", HERE)
    provider.add(ALICE, "user", "Likes tea.", MemorySource(surface="web"))
    note, fact = provider.entries(ALICE)
    assert (note.kind, note.text, fact.text) == ("memory", "A note.", "Likes tea.")
    assert (fact.owner, fact.audience, fact.source) == ("alice", "", HERE)
    assert fact.at is not None
    assert before <= fact.at <= datetime.now(UTC)


def test_entry_is_replaced_at_its_position_and_removed_once(provider: MemoryProvider) -> None:
    for text in ("One.", "Two.", "Three."):
        provider.add(OWNER, "memory", text, HERE)
    _, two, three = provider.entries(OWNER)
    provider.replace(OWNER, two, "Zwei.", MemorySource(surface="web"))
    assert texts(provider, OWNER) == [("memory", "One."), ("memory", "Zwei."), ("memory", "Three.")]
    assert provider.entries(OWNER)[1].source.surface == "web"
    assert provider.entries(OWNER)[2] == three
    with pytest.raises(ToolFailed):
        provider.replace(OWNER, two, "Deux.", HERE)
    provider.remove(OWNER, three)
    provider.remove(OWNER, three)
    assert texts(provider, OWNER) == [("memory", "One."), ("memory", "Zwei.")]


def test_entries_of_a_kind_are_rewritten_unless_they_were_changed_meanwhile(provider: MemoryProvider) -> None:
    for text in ("One.", "Two."):
        provider.add(ALICE, "memory", text, HERE)
    provider.add(ALICE, "user", "Likes tea.", HERE)
    provider.add(BOB, "memory", "One.", HERE)
    *before, fact = provider.entries(ALICE)
    short = MemoryEntry(kind="memory", text="1, 2.", source=MemorySource(surface="consolidation"))
    with pytest.raises(ToolFailed, match="changed"):
        provider.rewrite(ALICE, "memory", before[:1], [short])
    assert list(provider.entries(ALICE)) == [*before, fact]
    provider.rewrite(ALICE, "memory", before, [short])
    new, *rest = provider.entries(ALICE)
    assert (new.text, new.source.surface, new.at is not None, rest) == ("1, 2.", "consolidation", True, [fact])
    provider.rewrite(ALICE, "memory", [new], before)
    assert list(provider.entries(ALICE)) == [*before, fact], "times and sources are restored"
    assert texts(provider, BOB) == [("memory", "One.")]


def test_entries_of_another_person_or_group_are_not_visible(provider: MemoryProvider) -> None:
    viewers = (OWNER, ALICE, BOB, IN_GROUP, BOB_IN_GROUP, OTHER_GROUP)
    for number, viewer in enumerate(viewers):
        provider.add(viewer, "user", f"fact {number}", HERE)
    for number, viewer in enumerate(viewers):
        assert texts(provider, viewer) == [("user", f"fact {number}")]
    provider.add(IN_GROUP, "memory", "of the group", HERE)
    assert ("memory", "of the group") in texts(provider, BOB_IN_GROUP)
    assert not any(("memory", "of the group") in texts(provider, one) for one in (OWNER, ALICE, BOB, OTHER_GROUP))
    assert sorted(provider.people()) == ["alice", "bob"]


def test_another_process_reads_the_same_entries(provider: MemoryProvider, tmp_path: Path) -> None:
    provider.add(ALICE, "user", "Likes tea.", HERE)
    opening = DatabaseMemory if isinstance(provider, DatabaseMemory) else open_memory
    again: MemoryProvider = opening(MemoryAccount(folder=tmp_path))
    assert again.entries(ALICE) == provider.entries(ALICE)

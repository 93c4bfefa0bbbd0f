"""Damage of a store file is detected; readable rows are recovered into a new file, and the old one is preserved."""

import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import apsw
import pytest
from tests.contracts.sample_messages import text_message

from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.sessions import NewSession, SearchQuery, SessionFilter
from talaria.core.errors import Refused, StoreCorrupt, StoreUnavailable
from talaria.storage.sqlite.open import open_sqlite
from talaria.storage.sqlite.recovery import find_damage, recover
from talaria.storage.sqlite.store_file import StoreLock

SESSIONS, MESSAGES, PAGE = 12, 120, 4096
NOISE = random.Random(1).randbytes(PAGE)
Damage = Callable[[BinaryIO, int], object]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A store with interleaved sessions, so that their pages are mixed."""
    path = tmp_path / "talaria.db"
    database = open_sqlite(path)

    def add_messages(tx: Transaction) -> None:
        ids = [tx.sessions.create(NewSession(source="cli", title=f"Talk {n}")).id for n in range(SESSIONS)]
        for number in range(MESSAGES):
            for session in ids:
                text = f"message {number} about heron and lighthouse {'words ' * 30}"
                tx.messages.append(session, [text_message(text)])

    database.write(add_messages)
    database.close()
    return path


def test_intact_file_has_no_damage(file: Path) -> None:
    assert find_damage(file) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda stream, size: _overwrite(stream, size // 2, NOISE),
        lambda stream, size: _overwrite_many(stream, [size * n // 10 for n in range(3, 9)]),
        lambda stream, _: _overwrite(stream, 0, bytes(PAGE)),
        lambda stream, _: _overwrite(stream, 0, b"this is no longer a database"),
        lambda stream, size: stream.truncate(size * 3 // 4),
    ],
    ids=["a page in the middle", "many pages", "the first page", "the header", "the end cut off"],
)
def test_every_message_on_an_intact_page_is_recovered(file: Path, damage: Damage) -> None:
    sound, pages = file.read_bytes(), _messages_by_page(file)
    with file.open("r+b") as stream:
        damage(stream, len(sound))
    broken = file.read_bytes()
    assert broken != sound
    unharmed = [
        message for page, messages in pages.items() if _page(broken, page) == _page(sound, page) for message in messages
    ]
    assert unharmed
    assert find_damage(file)
    recovery = recover(file)
    assert recovery.kept.read_bytes() == broken
    assert find_damage(file) == []
    assert _stored_messages(file) == unharmed
    database = open_sqlite(file)
    assert _messages(database) == recovery.messages == len(unharmed)
    assert database.read(lambda tx: tx.search.find(SearchQuery(text="heron")))
    database.close()


@pytest.mark.parametrize("table", ["messages", "sessions"])
def test_rows_are_recovered_without_the_root_page_of_their_table(file: Path, table: str) -> None:
    with file.open("r+b") as stream:
        _overwrite(stream, (_root_page(file, table) - 1) * PAGE, bytes(PAGE))
    assert recover(file).messages == SESSIONS * MESSAGES


def test_messages_of_lost_sessions_are_recovered_in_new_sessions(file: Path) -> None:
    _lose_sessions(file)
    recovery = recover(file)
    database = open_sqlite(file)
    found = database.read(lambda tx: tx.sessions.find(SessionFilter(limit=None)))
    assert recovery.messages == _messages(database) == SESSIONS * MESSAGES
    assert {session.source for session in found} == {"recovered"}
    database.write(lambda tx: tx.messages.append(found[0].id, [text_message("and on we go")]))
    assert database.read(lambda tx: tx.messages.last(found[0].id, 1))[0].message.text == "and on we go"
    database.close()


def test_deleted_messages_are_not_recovered(file: Path) -> None:
    database = open_sqlite(file)
    gone = database.read(lambda tx: tx.sessions.find(SessionFilter(limit=None)))[0]
    database.write(lambda tx: tx.sessions.delete(gone.id))
    database.close()
    with file.open("r+b") as stream:
        _overwrite(stream, (_root_page(file, "messages") - 1) * PAGE, bytes(PAGE))
    assert recover(file).messages == (SESSIONS - 1) * MESSAGES


@pytest.mark.parametrize("lost", [["arrivals"], ["arrivals", "messages"]], ids=["arrivals", "arrivals and messages"])
def test_messages_are_recovered_without_the_arrivals_table(file: Path, lost: list[str]) -> None:
    database = open_sqlite(file)
    gone = database.read(lambda tx: tx.sessions.find(SessionFilter(limit=None)))[0]
    database.write(lambda tx: tx.sessions.delete(gone.id))
    database.close()
    roots = [_root_page(file, table) for table in lost]
    with file.open("r+b") as stream:
        for root in roots:
            _overwrite(stream, (root - 1) * PAGE, bytes(PAGE))
    assert recover(file).messages == (SESSIONS - 1) * MESSAGES


def test_messages_only_in_the_write_ahead_log_are_recovered(file: Path) -> None:
    writer = open_sqlite(file)
    session = writer.write(lambda tx: tx.sessions.create(NewSession(source="cli", title="Late")))
    writer.write(lambda tx: tx.messages.append(session.id, [text_message("the last word")]))
    copy = file.with_name("crashed.db")
    for companion in ("", "-wal"):
        Path(f"{copy}{companion}").write_bytes(Path(f"{file}{companion}").read_bytes())
    writer.close()
    recover(copy)
    database = open_sqlite(copy)
    assert database.read(lambda tx: tx.messages.load(session.id))[0].message.text == "the last word"
    database.close()


def test_opening_a_damaged_file_names_the_repair_command(file: Path) -> None:
    with file.open("r+b") as stream:
        _overwrite(stream, 0, bytes(PAGE))
    with pytest.raises(StoreCorrupt, match="talaria doctor --fix"):
        open_sqlite(file)


def test_a_file_in_use_is_not_replaced(file: Path) -> None:
    user = open_sqlite(file)
    with pytest.raises(Refused, match="in use"):
        recover(file)
    user.close()
    assert recover(file).messages == SESSIONS * MESSAGES


def test_file_under_repair_cannot_be_opened(file: Path) -> None:
    lock = StoreLock(file, alone=True)
    with pytest.raises(StoreUnavailable, match="being repaired"):
        open_sqlite(file)
    lock.end()
    open_sqlite(file).close()


def _root_page(file: Path, table: str) -> int:
    found = apsw.Connection(str(file)).execute("SELECT rootpage FROM sqlite_schema WHERE name = ?", (table,)).get
    return int(str(found))


def _lose_sessions(file: Path) -> None:
    """Destroy every page of the table of sessions, which is small."""
    connection = apsw.Connection(str(file))
    pages = [int(str(row[0])) for row in connection.execute("SELECT pageno FROM dbstat WHERE name = 'sessions'")]
    connection.close()
    with file.open("r+b") as stream:
        for page in pages:
            _overwrite(stream, (page - 1) * PAGE, bytes(PAGE))


def _overwrite(stream: BinaryIO, offset: int, content: bytes) -> None:
    stream.seek(offset // PAGE * PAGE)
    stream.write(content)


def _overwrite_many(stream: BinaryIO, offsets: list[int]) -> None:
    for offset in offsets:
        _overwrite(stream, offset, NOISE)


def _page(content: bytes, number: int) -> bytes:
    return content[(number - 1) * PAGE : number * PAGE]


def _stored_messages(file: Path) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(file))
    rows = list(connection.execute("SELECT id, body FROM messages ORDER BY id"))
    connection.close()
    return rows


def _messages_by_page(file: Path) -> dict[int, list[tuple[object, ...]]]:
    """Return the messages on each page; the leaves of the table hold them in the order of their ids."""
    messages = iter(_stored_messages(file))
    connection = apsw.Connection(str(file))
    leaves = connection.execute(
        "SELECT pageno, ncell FROM dbstat WHERE name = 'messages' AND pagetype = 'leaf' ORDER BY path"
    ).fetchall()
    connection.close()
    found = {int(str(page)): list(islice(messages, int(str(count)))) for page, count in leaves}
    assert sum(map(len, found.values())) == SESSIONS * MESSAGES
    return found


def _messages(database: Database) -> int:
    def count(tx: Transaction) -> int:
        return sum(len(tx.messages.load(session.id)) for session in tx.sessions.find(SessionFilter(limit=None)))

    return database.read(count)

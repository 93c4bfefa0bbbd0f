"""A repair skips and counts damaged rows, and leaves the damaged file in place until the new one is complete."""

import json
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import apsw
import pytest
from tests.contracts.sample_messages import text_message
from tests.storage.concurrent_processes import ROOT

from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import NewSession, SessionFilter
from talaria.core.errors import StoreCorrupt, StoreFull, StoreMissing, StoreUnavailable
from talaria.storage.sqlite.open import open_sqlite
from talaria.storage.sqlite.recovery import Recovery, find_damage, recover
from talaria.storage.sqlite.store import DailyCheck
from talaria.storage.sqlite.store_file import CheckRecord
from talaria.testing.clock import SettableClock

SESSIONS, MESSAGES = 6, 80
ALL = SESSIONS * MESSAGES
FEW_MESSAGES, KILLS = 15, 30


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A store with a few sessions."""
    return create_store(tmp_path / "talaria.db", MESSAGES)


def create_store(path: Path, messages: int) -> Path:
    """Create a store with this many messages in each session."""
    database = open_sqlite(path)

    def add_messages(tx: Transaction) -> None:
        ids = [tx.sessions.create(NewSession(source="cli", title=f"Talk {n}")).id for n in range(SESSIONS)]
        for number in range(messages):
            for session in ids:
                tx.messages.append(session, [text_message(f"message {number} {'of words ' * 20}")])

    database.write(add_messages)
    database.close()
    return path


def damage(file: Path, seed: int, count: int) -> bytes:
    """Overwrite 64 bytes at random offsets of a file and return the resulting bytes."""
    chance = random.Random(seed)
    content = bytearray(file.read_bytes())
    for _ in range(count):
        start = chance.randrange(len(content) - 64)
        content[start : start + 64] = chance.randbytes(64)
    file.write_bytes(content)
    return bytes(content)


def stored_messages(file: Path) -> int:
    """Return how many messages can be read, in all sessions."""
    database = open_sqlite(file)

    def count(tx: Transaction) -> int:
        found = tx.sessions.find(SessionFilter(limit=None, archived=None))
        return sum(len(tx.messages.load(session.id)) for session in found)

    try:
        return database.read(count)
    finally:
        database.close()


@pytest.mark.parametrize("count", [5, 50])
@pytest.mark.parametrize("seed", range(12))
def test_random_damage_is_found_and_the_rest_recovered(file: Path, seed: int, count: int) -> None:
    broken = damage(file, seed, count)
    assert find_damage(file) != [] or stored_messages(file) == ALL
    recovery = recover(file)
    assert recovery.kept.read_bytes() == broken
    assert find_damage(file) == []
    assert stored_messages(file) == recovery.messages
    assert recovery.messages + recovery.lost_messages >= ALL
    assert recovery.messages >= ALL * (0.9 if count == 5 else 0.3)


def test_text_that_is_not_utf_8_is_damage_and_reported_by_reading(file: Path) -> None:
    raw = apsw.Connection(str(file))
    raw.execute("UPDATE messages SET body = CAST(x'8e8f' AS TEXT) WHERE id % 10 = 1")
    raw.close()
    with pytest.raises(StoreCorrupt, match="doctor --fix"):
        stored_messages(file)
    assert CheckRecord(file).state == "damaged"
    assert find_damage(file) == [f"{ALL // 10} rows of the table messages can't be read."]
    recovery = recover(file)
    assert (recovery.messages, recovery.lost_messages) == (ALL - ALL // 10, ALL // 10)
    assert f"At least {ALL // 10} messages couldn't be read." in str(recovery)
    assert stored_messages(file) == recovery.messages


@pytest.mark.parametrize("change", ["body = '{\"parts\": 7}'", "body = 'no json'", "at = 9223372036854775807"])
def test_invalid_value_in_a_message_is_damage(file: Path, change: str) -> None:
    raw = apsw.Connection(str(file))
    raw.execute(f"UPDATE messages SET {change} WHERE id IN (SELECT id FROM messages LIMIT 3)")
    raw.close()
    with pytest.raises(StoreCorrupt, match="doctor --fix"):
        stored_messages(file)
    assert find_damage(file) == ["3 rows of the table messages can't be read."]
    assert recover(file).lost_messages == 3
    assert stored_messages(file) == ALL - 3


def test_damaged_rows_of_other_tables_are_counted(file: Path) -> None:
    database = open_sqlite(file)
    database.write(lambda tx: [tx.named_values.put("test", f"key {number}", "value") for number in range(5)])
    database.close()
    raw = apsw.Connection(str(file))
    raw.execute("UPDATE named_values SET value = CAST(x'ff' AS TEXT) WHERE key IN ('key 1', 'key 3')")
    raw.close()
    recovery = recover(file)
    assert (recovery.lost_messages, recovery.lost_rows) == (0, 2)
    assert "At least 2 other records couldn't be read." in str(recovery)


@pytest.mark.parametrize(
    ("recovery", "sentence"),
    [
        (Recovery(Path("x"), 1, 1), "1 message in 1 session was recovered. No message is known to be missing."),
        (Recovery(Path("x"), 2, 9, 1, 1), "At least 1 message and 1 other record couldn't be read."),
    ],
)
def test_recovery_report_counts_recovered_and_lost_rows(recovery: Recovery, sentence: str) -> None:
    assert sentence in str(recovery)


@pytest.mark.parametrize(("offset", "content"), [(60, b"\xff" * 12), (68, b"\0\0\0\1"), (44, b"\xff" * 4)])
def test_damaged_header_is_reported_as_corrupt(file: Path, offset: int, content: bytes) -> None:
    with file.open("r+b") as stream:
        stream.seek(offset)
        stream.write(content)
    with pytest.raises(StoreCorrupt):
        open_sqlite(file)
    assert recover(file).messages == ALL


@pytest.mark.timeout(300)
def test_repair_killed_at_any_point_is_repeated_or_finished(tmp_path: Path) -> None:
    file = create_store(tmp_path / "talaria.db", FEW_MESSAGES)
    damage(file, seed=3, count=20)
    copy = file.with_name("whole.db")
    copy.write_bytes(file.read_bytes())
    expected = recover(copy).messages
    assert expected < SESSIONS * FEW_MESSAGES
    done = subprocess.run(
        [sys.executable, "-m", "tests.storage.killed_repair", str(file), str(KILLS)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(results) >= KILLS
    for result in results:
        assert result["is_there"], result
        assert result["messages"] == expected, result
        assert {*result["left"]} - {".report"} == {"", ".lock", ".checked", ".damaged"}, result


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Limit the size of files that this process writes."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.9, 0.99])
def test_repair_without_disk_space_changes_nothing(file: Path, share: float) -> None:
    broken = damage(file, seed=1, count=50)
    with largest_file(int(len(broken) * share)), pytest.raises((StoreFull, StoreUnavailable), match="n't be repaired"):
        recover(file)
    assert file.read_bytes() == broken
    assert {path.suffix for path in file.parent.iterdir()} == {".db", ".lock", ".checked"}
    assert recover(file).messages > 0


@pytest.mark.parametrize("leftover", ["talaria.db.damaged-20261115T220610582994", "talaria.db.recovering"])
def test_no_empty_store_is_created_next_to_a_damaged_one(tmp_path: Path, leftover: str) -> None:
    (tmp_path / leftover).write_bytes(b"damaged")
    with pytest.raises(StoreMissing, match="doctor --fix"):
        open_sqlite(tmp_path / "talaria.db")
    assert not (tmp_path / "talaria.db").exists()
    assert find_damage(tmp_path / "talaria.db")


def test_missing_store_is_recovered_from_the_damaged_copy(file: Path) -> None:
    damage(file, seed=2, count=5)
    file.rename(file.with_name("talaria.db.damaged-20261115T220610582994"))
    file.with_name("talaria.db.recovering").write_bytes(b"")
    with pytest.raises(StoreMissing):
        open_sqlite(file)
    recovery = recover(file)
    assert recovery.kept.name == "talaria.db.damaged-20261115T220610582994"
    assert stored_messages(file) == recovery.messages > 0


def test_empty_store_file_is_not_treated_as_new(file: Path) -> None:
    file.write_bytes(b"")
    with pytest.raises(StoreMissing, match="is empty"):
        open_sqlite(file)
    assert file.stat().st_size == 0
    assert "is empty" in find_damage(file)[0]
    assert file.stat().st_size == 0
    assert recover(file).messages == 0
    assert stored_messages(file) == 0


def test_deleted_store_is_replaced_by_a_new_one(file: Path) -> None:
    file.unlink()
    open_sqlite(file).close()
    assert stored_messages(file) == 0


def test_daily_check_finds_damage_and_records_it(file: Path) -> None:
    clock = SettableClock()
    CheckRecord(file).write("sound", clock.now())
    with file.open("r+b") as stream:
        stream.seek(file.stat().st_size // 2)
        stream.write(b"\xff" * 4096)
    check = DailyCheck(file, clock)
    check.run_if_due()
    assert CheckRecord(file).state == "sound"
    clock.advance(timedelta(hours=25))
    check.run_if_due()
    assert CheckRecord(file).state == "damaged"


def test_checked_store_is_not_checked_again_for_a_day(file: Path) -> None:
    clock, record = SettableClock(), CheckRecord(file)
    record.write("unknown", clock.now())
    assert record.is_due(clock.now())
    DailyCheck(file, clock).run_if_due()
    assert record.state == "sound"
    assert not record.is_due(clock.now() + timedelta(hours=23))
    assert record.is_due(clock.now() + timedelta(hours=24))
    assert record.is_due(clock.now() - timedelta(days=1))

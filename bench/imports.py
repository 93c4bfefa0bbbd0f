"""Import of a large home of Hermes, compared with plain inserts of the same messages and an index of their words."""

import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.measure import Measurement, bytecode_environment, installed
from bench.store_floor import BareMessages, BareSearch
from bench.store_text import Example, Writer
from talaria.core.messages import Message, Text
from talaria.testing.hermes_home import HermesHome

NAME = "import"

_SESSIONS, _MESSAGES = 1_000, 100
_IN_COMMIT = 2_000
_START = 1_767_225_600.0
_GOAL_SECONDS = 60.0
_GOAL_RATIO = 2.0
_GOAL_AGAIN = 4.0
_ROLES = ("user", "assistant")


def run(quick: bool) -> list[Measurement]:
    """Measure `talaria import hermes` from start to end, with the index of words; it shows its progress meanwhile."""
    sessions = _SESSIONS // 10 if quick else _SESSIONS
    count = sessions * _MESSAGES
    writer = Writer(sessions=2)
    texts = [writer.text() for _ in range(count)]
    with TemporaryDirectory() as folder:
        place = Path(folder)
        _make_home(place / "hermes", texts)
        floor = _insert_bare(place, texts)
        ours = _import(place)
        again = _import(place)
        _check(place, count)
    name = f"{count:,} messages in {sessions:,} sessions"
    return [
        Measurement(f"import of {name}", ours, "s", _GOAL_RATIO, floor),
        Measurement(f"import of {name}, in all", ours, "s", _GOAL_SECONDS),
        Measurement("the same import again, nothing new", again, "s", _GOAL_AGAIN),
    ]


def _make_home(folder: Path, texts: Sequence[str]) -> None:
    home = HermesHome(folder)
    for number, first in enumerate(range(0, len(texts), _MESSAGES)):
        session, start = f"session-{number:04}", _START + 1_000.0 * number
        home.add_session(session, started_at=start, title=f"Conversation {number}", model="big", api_call_count=50)
        home.add_messages(
            session,
            [
                {"role": _ROLES[place % 2], "content": text, "timestamp": start + place}
                for place, text in enumerate(texts[first : first + _MESSAGES])
            ],
        )
    home.close()


def _insert_bare(place: Path, texts: Sequence[str]) -> float:
    """Read the messages from Hermes' table, and insert them into ours with 20 sessions in each commit."""
    start = perf_counter()
    bare = BareMessages(place / "bare.db", len(texts) // _MESSAGES)
    waiting: list[Example] = []
    for session in _read_sessions(place / "hermes" / "state.db"):
        waiting += session
        if len(waiting) >= _IN_COMMIT:
            bare.append(waiting)
            waiting = []
    bare.append(waiting)
    bare.close()
    search = BareSearch(place / "words.db")
    search.build(texts)
    search.close()
    return perf_counter() - start


def _read_sessions(store: Path) -> Iterator[list[Example]]:
    connection = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    at = datetime.fromtimestamp(_START, UTC)
    for number in range(connection.execute("SELECT count(*) FROM sessions").fetchone()[0]):
        rows = connection.execute(
            "SELECT role, content FROM messages WHERE session_id = ? ORDER BY id", (f"session-{number:04}",)
        )
        yield [Example(number, Message(role=role, parts=(Text(text),), at=at)) for role, text in rows]
    connection.close()


def _import(place: Path) -> float:
    command = [installed("talaria"), "import", "hermes", str(place / "hermes"), "--yes"]
    environment = bytecode_environment() | {"TALARIA_HOME": str(place / "talaria"), "HOME": str(place)}
    start = perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return perf_counter() - start


def _check(place: Path, count: int) -> None:
    connection = sqlite3.connect(place / "talaria" / "profiles" / "default" / "talaria.db")
    [(stored,)] = connection.execute("SELECT count(*) FROM messages").fetchall()
    connection.close()
    if stored != count:
        raise SystemExit(f"{stored} of {count} messages were imported.")

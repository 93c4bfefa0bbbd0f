"""Import of a large Hermes home, compared with plain inserts and a full-text index."""

import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from bench.measure import Measurement, bytecode_environment, command_path
from bench.store_floor import BareMessages, BareSearch
from bench.store_text import Example, MessageGenerator
from talaria.core.messages import Message, Text
from talaria.testing.hermes_home import HermesHome

NAME = "import"

_SESSIONS, _MESSAGES = 1_000, 100
_COMMIT_SIZE = 2_000
_START = 1_767_225_600.0
_GOAL_SECONDS = 60.0
_GOAL_RATIO = 2.0
_GOAL_AGAIN = 4.0
_ROLES = ("user", "assistant")


def run(quick: bool) -> list[Measurement]:
    """Measure `talaria import hermes` from start to end, including the full-text index and progress output."""
    sessions = _SESSIONS // 10 if quick else _SESSIONS
    count = sessions * _MESSAGES
    generator = MessageGenerator(sessions=2)
    texts = [generator.text() for _ in range(count)]
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        _make_home(folder / "hermes", texts)
        floor = _insert_bare(folder, texts)
        ours = _run_import(folder)
        again = _run_import(folder)
        _check(folder, count)
    name = f"{count:,} messages in {sessions:,} sessions"
    return [
        Measurement(f"import of {name}", ours, "s", _GOAL_RATIO, floor),
        Measurement(f"import of {name}, total time", ours, "s", _GOAL_SECONDS),
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
                {"role": _ROLES[offset % 2], "content": text, "timestamp": start + offset}
                for offset, text in enumerate(texts[first : first + _MESSAGES])
            ],
        )
    home.close()


def _insert_bare(folder: Path, texts: Sequence[str]) -> float:
    """Copy the messages from Hermes' table into ours, 20 sessions per commit, and index them."""
    start = perf_counter()
    bare = BareMessages(folder / "bare.db", len(texts) // _MESSAGES)
    batch: list[Example] = []
    for session in _read_sessions(folder / "hermes" / "state.db"):
        batch += session
        if len(batch) >= _COMMIT_SIZE:
            bare.append(batch)
            batch = []
    bare.append(batch)
    bare.close()
    search = BareSearch(folder / "search.db")
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


def _run_import(folder: Path) -> float:
    command = [command_path("talaria"), "import", "hermes", str(folder / "hermes"), "--yes"]
    environment = bytecode_environment() | {"TALARIA_HOME": str(folder / "talaria"), "HOME": str(folder)}
    start = perf_counter()
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return perf_counter() - start


def _check(folder: Path, count: int) -> None:
    connection = sqlite3.connect(folder / "talaria" / "profiles" / "default" / "talaria.db")
    [(stored,)] = connection.execute("SELECT count(*) FROM messages").fetchall()
    connection.close()
    if stored != count:
        raise SystemExit(f"{stored} of {count} messages were imported.")

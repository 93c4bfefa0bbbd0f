"""Floor for the store: Python's sqlite3 module on one connection."""

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from time import perf_counter, time_ns

import msgspec

from bench.store_text import Example, make_session_id
from talaria.storage.sqlite.connection import MIGRATIONS
from talaria.storage.tables.search import add_separators
from talaria.storage.tables.sessions import SEQ_BITS, MessageBody
from talaria.storage.tables.snippets import TOKENIZER

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(MessageBody).decode
_NEWEST = 2000
_BEST = 20


def open_bare(path: Path) -> sqlite3.Connection:
    """Return a connection in autocommit mode, as durable as the store's."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


class BareMessages:
    """The store's tables of sessions and messages, filled by plain statements, without a full-text index."""

    def __init__(self, path: Path, sessions: int) -> None:
        self._connection = open_bare(path)
        self._connection.executescript((MIGRATIONS / "0001_conversations.sql").read_text())
        self._connection.executemany(
            "INSERT INTO sessions (id, source, created_at, updated_at) VALUES (?, 'cli', 0, 0)",
            [(make_session_id(number),) for number in range(sessions)],
        )

    def append(self, examples: Sequence[Example]) -> float:
        """Store messages in one commit and return the seconds it took."""
        start = perf_counter()
        self._connection.execute("BEGIN IMMEDIATE")
        for example in examples:
            self._insert(example)
        self._connection.execute("COMMIT")
        return perf_counter() - start

    def close(self) -> None:
        self._connection.close()

    def _insert(self, example: Example) -> None:
        now = time_ns() // 1000
        [(number, seq)] = self._connection.execute(
            "UPDATE sessions SET last_seq = last_seq + 1, updated_at = ? WHERE id = ? RETURNING number, last_seq",
            (now, make_session_id(example.session)),
        ).fetchall()
        message_id = (number << SEQ_BITS) + seq
        arrival = self._connection.execute("INSERT INTO arrivals (message_id) VALUES (?)", (message_id,)).lastrowid
        self._connection.execute(
            "INSERT INTO messages (id, arrival, at, role, body) VALUES (?, ?, ?, ?, ?)",
            (message_id, arrival, now, example.message.role, _encode(MessageBody(example.message.parts)).decode()),
        )


def load_rows(connection: sqlite3.Connection, first_id: int, last_id: int) -> list[MessageBody]:
    """Fetch the rows of a transcript from the store's own file and decode their bodies."""
    rows = connection.execute(
        "SELECT id, at, role, body, platform_message_id FROM messages WHERE id BETWEEN ? AND ? ORDER BY id",
        (first_id, last_id),
    ).fetchall()
    return [_decode(row[3]) for row in rows]


class BareSearch:
    """Ordinary FTS5 table that stores the text, with the store's tokenizer.

    A query ranks the newest 2,000 matches by bm25 and makes snippets of the best 20. The store returns more (session,
    title, role, time), but for a phrase in a large index it ranks only the newest 200, so the ratios of phrases and
    Chinese words don't compare the same work.
    """

    def __init__(self, path: Path) -> None:
        self._connection = open_bare(path)

    def build(self, texts: Iterable[str]) -> None:
        """Index the texts in one transaction."""
        self._connection.execute(f'CREATE VIRTUAL TABLE texts USING fts5 (text, tokenize = "{TOKENIZER}")')
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT INTO texts (text) VALUES (?)", ((add_separators(text),) for text in texts))
        self._connection.execute("COMMIT")

    def find(self, text: str) -> list[tuple[int, float, str]]:
        """Return row, score and snippet of the best matches of a phrase."""
        phrase = f'"{add_separators(text)}"'
        ranked = self._connection.execute(
            "SELECT rowid, score FROM (SELECT rowid, bm25(texts) AS score FROM texts WHERE texts MATCH ?"
            " ORDER BY rowid DESC LIMIT ?) ORDER BY score, rowid DESC LIMIT ?",
            (phrase, _NEWEST, _BEST),
        ).fetchall()
        return [(row, score, self._snippet(phrase, row)) for row, score in ranked]

    def close(self) -> None:
        self._connection.close()

    def _snippet(self, phrase: str, row: int) -> str:
        [(snippet,)] = self._connection.execute(
            "SELECT snippet(texts, 0, '[', ']', '…', 24) FROM texts WHERE texts MATCH ? AND rowid = ?", (phrase, row)
        )
        return str(snippet)

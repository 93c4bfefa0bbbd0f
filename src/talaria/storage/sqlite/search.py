"""Full-text search with FTS5, indexed in batches up to a watermark."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from talaria.contracts.stores.search import Hit, SearchQuery
from talaria.storage.tables.search import JOINS, RANKED_LIMIT, build_filters, make_hits
from talaria.storage.tables.search_terms import ParsedQuery, add_separators, format_match, has_phrases, parse_query
from talaria.storage.tables.sessions import searchable_text
from talaria.storage.tables.sql import Row, Sql

if TYPE_CHECKING:  # loaded with the first search
    from talaria.storage.tables.snippets import SnippetMaker

_LARGE_INDEX = 100_000  # messages; above this, reading texts is faster than counting a phrase in the index
_PHRASE_WINDOW = 200  # only this many of the newest phrase matches are ranked
_MERGED_PAGES = 128  # per batch; enough to keep up, and takes a few milliseconds at most


class SqliteArrivals:
    """`ArrivalLog` implementation; the text is read again when the message is indexed."""

    def __init__(self, sql: Sql, last_number: Callable[[], int]) -> None:
        self._sql = sql
        self._last_number = last_number

    def note(self, message_id: int, text: str) -> int:
        """Add a message and return its arrival number."""
        self._sql.run("INSERT INTO arrivals (message_id) VALUES (?)", (message_id,))
        return self._last_number()

    def add_copy(self, message_id: int, copy_id: int) -> int:
        """Add a copy of a stored message and return the arrival number of the copy."""
        return self.note(copy_id, "")

    def forget(self, first_id: int, last_id: int) -> None:
        """Remove the messages in a range of ids; call before they are deleted."""
        numbers = self._sql.rows("SELECT arrival FROM messages WHERE id BETWEEN ? AND ?", (first_id, last_id))
        self._sql.run_many("DELETE FROM words WHERE rowid = ?", numbers)
        self._sql.run_many("DELETE FROM arrivals WHERE number = ?", numbers)


class SqliteSearch:
    """`Search` implementation with FTS5; messages that are not indexed yet are searched by their text."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def find(self, query: SearchQuery) -> list[Hit]:
        """Return the best matches, highest score first; a query without words returns none."""
        parsed = parse_query(query.text)
        if not parsed.groups:
            return []
        scored = self._find_indexed(query, parsed) + self._find_unindexed(query, parsed)
        scored.sort(key=lambda pair: (-pair[1], -pair[0]))
        return make_hits(self._sql, self._snippets, parsed, scored[: query.limit])

    def unindexed(self) -> int:
        """Return the number of stored messages that are not indexed yet."""
        row = self._sql.row("SELECT count(*) FROM arrivals WHERE number > (SELECT arrival FROM indexed)")
        return int(row[0]) if row else 0

    def catch_up(self, count: int = 200) -> int:
        """Index up to ``count`` messages, oldest first, and return their number."""
        rows = self._sql.rows(
            "SELECT number, body FROM arrivals JOIN messages ON messages.id = message_id"
            " WHERE number > (SELECT arrival FROM indexed) ORDER BY number LIMIT ?",
            (count,),
        )
        if rows:
            self._sql.run_many(
                "INSERT INTO words (rowid, text) VALUES (?, ?)",
                [(number, add_separators(searchable_text(body))) for number, body in rows],
            )
            self._sql.run("UPDATE indexed SET arrival = ?", (rows[-1][0],))
            self._sql.run("INSERT INTO words (words, rank) VALUES ('merge', ?)", (_MERGED_PAGES,))
        return len(rows)

    @cached_property
    def _snippets(self) -> "SnippetMaker":
        from talaria.storage.tables.snippets import SnippetMaker  # noqa: PLC0415 (loaded with the first search)

        return SnippetMaker()

    def _find_indexed(self, query: SearchQuery, parsed: ParsedQuery) -> list[tuple[int, float]]:
        if has_phrases(parsed) and self._index_is_large():
            return self._find_phrases(query, parsed)
        conditions, values = build_filters(query)
        joins = f" JOIN arrivals ON arrivals.number = words.rowid{JOINS}" if conditions else ""
        rows = self._sql.rows(
            "SELECT number, score FROM (SELECT words.rowid AS number, -bm25(words) AS score"
            f" FROM words{joins} WHERE words MATCH ?{conditions} ORDER BY words.rowid DESC LIMIT ?)"
            " ORDER BY score DESC, number DESC LIMIT ?",
            (format_match(parsed), *values, RANKED_LIMIT, query.limit),
        )
        return [(number, score) for number, score in rows]

    def _find_phrases(self, query: SearchQuery, parsed: ParsedQuery) -> list[tuple[int, float]]:
        """Rank phrase matches by their texts, because bm25() would count each phrase in the whole index."""
        conditions, values = build_filters(query)
        rows = self._sql.rows(
            f"SELECT arrivals.number, messages.body FROM words JOIN arrivals ON arrivals.number = words.rowid{JOINS}"
            f" WHERE words MATCH ?{conditions} ORDER BY words.rowid DESC LIMIT ?",
            (format_match(parsed), *values, _PHRASE_WINDOW),
        )
        return self._score_rows(rows, parsed)

    def _index_is_large(self) -> bool:
        return self._sql.row("SELECT 1 FROM indexed WHERE arrival > ?", (_LARGE_INDEX,)) is not None

    def _find_unindexed(self, query: SearchQuery, parsed: ParsedQuery) -> list[tuple[int, float]]:
        conditions, values = build_filters(query)
        rows = self._sql.rows(
            f"SELECT arrivals.number, messages.body FROM arrivals{JOINS}"
            f" WHERE arrivals.number > (SELECT arrival FROM indexed){conditions}"
            " ORDER BY arrivals.number DESC LIMIT ?",
            (*values, RANKED_LIMIT),
        )
        return self._score_rows(rows, parsed)

    def _score_rows(self, rows: Sequence[Row], parsed: ParsedQuery) -> list[tuple[int, float]]:
        if not rows:
            return []
        scores = self._snippets.score([searchable_text(body) for _, body in rows], parsed)
        return [(rows[position][0], score) for position, score in scores]

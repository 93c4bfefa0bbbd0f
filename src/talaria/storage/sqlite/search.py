"""Full-text search by FTS5, indexed in batches behind a watermark."""

from collections.abc import Callable, Sequence
from functools import cached_property

from talaria.contracts.stores.search import Hit, SearchQuery
from talaria.storage.snippets import Snippets, match_expression
from talaria.storage.sql import Row, Sql
from talaria.storage.tables.search import JOINS, WINDOW, filters, make_hits, searchable_text
from talaria.storage.words import Query, has_phrases, parse_query, seamed

_LARGE_INDEX = 100_000  # messages: from here on it is quicker to read texts than to count a phrase in all of them
_PHRASE_WINDOW = 200  # and of the messages with a phrase, so many of the newest are ranked
_MERGED_PAGES = 128  # for each batch: enough to keep up with it, at most some milliseconds


class SqliteArrivals:
    """Implements `Arrivals`: the text is read again when it is indexed."""

    def __init__(self, sql: Sql, last_number: Callable[[], int]) -> None:
        self._sql = sql
        self._last_number = last_number

    def note(self, message_id: int, text: str) -> int:
        """Take a message in and return its number."""
        self._sql.run("INSERT INTO arrivals (message_id) VALUES (?)", (message_id,))
        return self._last_number()

    def note_copy(self, message_id: int, copy_id: int) -> int:
        """Take in a copy of a message that is stored already and return its number."""
        return self.note(copy_id, "")

    def forget(self, first_id: int, last_id: int) -> None:
        """Drop the messages in a range of ids, before they are deleted."""
        numbers = self._sql.rows("SELECT arrival FROM messages WHERE id BETWEEN ? AND ?", (first_id, last_id))
        self._sql.run_many("DELETE FROM words WHERE rowid = ?", numbers)
        self._sql.run_many("DELETE FROM arrivals WHERE number = ?", numbers)


class SqliteSearch:
    """Implements `Search`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def find(self, query: SearchQuery) -> list[Hit]:
        """Return the best matches; text without a word in it finds nothing and never raises."""
        parsed = parse_query(query.text)
        if not parsed.groups:
            return []
        scored = self._indexed(query, parsed) + self._not_yet_indexed(query, parsed)
        scored.sort(key=lambda pair: (-pair[1], -pair[0]))
        return make_hits(self._sql, self._snippets, parsed, scored[: query.limit])

    def unindexed(self) -> int:
        """Return how many stored messages are not indexed yet."""
        row = self._sql.row("SELECT count(*) FROM arrivals WHERE number > (SELECT arrival FROM indexed)")
        return int(row[0]) if row else 0

    def catch_up(self, count: int = 200) -> int:
        """Index up to ``count`` messages that are stored but not indexed, and return how many were."""
        rows = self._sql.rows(
            "SELECT number, body FROM arrivals JOIN messages ON messages.id = message_id"
            " WHERE number > (SELECT arrival FROM indexed) ORDER BY number LIMIT ?",
            (count,),
        )
        if rows:
            self._sql.run_many(
                "INSERT INTO words (rowid, text) VALUES (?, ?)",
                [(number, seamed(searchable_text(body))) for number, body in rows],
            )
            self._sql.run("UPDATE indexed SET arrival = ?", (rows[-1][0],))
            self._sql.run("INSERT INTO words (words, rank) VALUES ('merge', ?)", (_MERGED_PAGES,))
        return len(rows)

    @cached_property
    def _snippets(self) -> Snippets:
        return Snippets()

    def _indexed(self, query: SearchQuery, parsed: Query) -> list[tuple[int, float]]:
        if has_phrases(parsed) and self._index_is_large():
            return self._indexed_phrases(query, parsed)
        conditions, values = filters(query)
        joins = f" JOIN arrivals ON arrivals.number = words.rowid{JOINS}" if conditions else ""
        rows = self._sql.rows(
            "SELECT number, score FROM (SELECT words.rowid AS number, -bm25(words) AS score"
            f" FROM words{joins} WHERE words MATCH ?{conditions} ORDER BY words.rowid DESC LIMIT ?)"
            " ORDER BY score DESC, number DESC LIMIT ?",
            (match_expression(parsed), *values, WINDOW, query.limit),
        )
        return [(number, score) for number, score in rows]

    def _indexed_phrases(self, query: SearchQuery, parsed: Query) -> list[tuple[int, float]]:
        """Rank phrases by their texts: bm25() would first count them in the whole index, word by word."""
        conditions, values = filters(query)
        rows = self._sql.rows(
            f"SELECT arrivals.number, messages.body FROM words JOIN arrivals ON arrivals.number = words.rowid{JOINS}"
            f" WHERE words MATCH ?{conditions} ORDER BY words.rowid DESC LIMIT ?",
            (match_expression(parsed), *values, _PHRASE_WINDOW),
        )
        return self._scored(rows, parsed)

    def _index_is_large(self) -> bool:
        return self._sql.row("SELECT 1 FROM indexed WHERE arrival > ?", (_LARGE_INDEX,)) is not None

    def _not_yet_indexed(self, query: SearchQuery, parsed: Query) -> list[tuple[int, float]]:
        conditions, values = filters(query)
        rows = self._sql.rows(
            f"SELECT arrivals.number, messages.body FROM arrivals{JOINS}"
            f" WHERE arrivals.number > (SELECT arrival FROM indexed){conditions}"
            " ORDER BY arrivals.number DESC LIMIT ?",
            (*values, WINDOW),
        )
        return self._scored(rows, parsed)

    def _scored(self, rows: Sequence[Row], parsed: Query) -> list[tuple[int, float]]:
        if not rows:
            return []
        scores = self._snippets.score([searchable_text(body) for _, body in rows], parsed)
        return [(rows[place][0], score) for place, score in scores]

"""Full-text search by stored vectors of words."""

from functools import cached_property

from talaria.contracts.stores.search import Hit, SearchQuery
from talaria.storage.snippets import Snippets
from talaria.storage.sql import Sql
from talaria.storage.tables.search import JOINS, WINDOW, filters, make_hits
from talaria.storage.words import Query, Term, parse_query, plain_words

_INDEXED_CHARACTERS = 200_000  # a vector may have a megabyte
_WORD_CHARACTERS = 500  # and a word in it two thousand bytes


class PostgresArrivals:
    """Implements `Arrivals`: the words are stored with the number."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def note(self, message_id: int, text: str) -> int:
        """Take a message in and return its number."""
        words = " ".join(word[:_WORD_CHARACTERS] for word in plain_words(text[:_INDEXED_CHARACTERS]))
        row = self._sql.row(
            "INSERT INTO arrivals (message_id, words) VALUES (?, to_tsvector('plain_words', ?)) RETURNING number",
            (message_id, words),
        )
        assert row is not None
        return int(row[0])

    def note_copy(self, message_id: int, copy_id: int) -> int:
        """Take in a copy of a message that is stored already and return its number."""
        row = self._sql.row(
            "INSERT INTO arrivals (message_id, words) SELECT ?, words FROM arrivals"
            " WHERE number = (SELECT arrival FROM messages WHERE id = ?) RETURNING number",
            (copy_id, message_id),
        )
        assert row is not None
        return int(row[0])

    def forget(self, first_id: int, last_id: int) -> None:
        """Drop the messages in a range of ids, before they are deleted."""
        self._sql.run(
            "DELETE FROM arrivals WHERE number IN (SELECT arrival FROM messages WHERE id BETWEEN ? AND ?)",
            (first_id, last_id),
        )


class PostgresSearch:
    """Implements `Search`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def find(self, query: SearchQuery) -> list[Hit]:
        """Return the best matches; text without a word in it finds nothing and never raises."""
        parsed = parse_query(query.text)
        if not parsed.groups:
            return []
        conditions, values = filters(query)
        wanted = query_expression(parsed)
        rows = self._sql.rows(
            "SELECT number, ts_rank_cd(words, to_tsquery('plain_words', ?)) AS score"
            " FROM (SELECT arrivals.number, words"
            f" FROM arrivals{JOINS if conditions else ''} WHERE words @@ to_tsquery('plain_words', ?){conditions}"
            " ORDER BY arrivals.number DESC LIMIT ?) AS newest ORDER BY score DESC, number DESC LIMIT ?",
            (wanted, wanted, *values, WINDOW, query.limit),
        )
        return make_hits(self._sql, self._snippets, parsed, [(number, score) for number, score in rows])

    def unindexed(self) -> int:
        """Return 0: what is stored is indexed."""
        return 0

    def catch_up(self, count: int = 200) -> int:
        """Return 0: what is stored is indexed."""
        return 0

    @cached_property
    def _snippets(self) -> Snippets:
        return Snippets()


def query_expression(query: Query) -> str:
    """Return the query as ``to_tsquery`` spells it."""
    wanted = " & ".join(f"({' | '.join(map(_spelled, group))})" for group in query.groups)
    excluded = "".join(f" & !({_spelled(term)})" for term in query.excluded)
    return wanted + excluded


def _spelled(term: Term) -> str:
    words = [f"'{word}'" for word in plain_words(term.text)]
    return " <-> ".join(words) + (":*" if term.prefix else "")

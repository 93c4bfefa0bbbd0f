"""Full-text search on stored ``tsvector`` columns."""

from functools import cached_property

from talaria.contracts.stores.sessions import Hit, SearchQuery
from talaria.core.messages import Part, text_of
from talaria.storage.tables.search import JOINS, RANKED_LIMIT, build_filters, make_hits
from talaria.storage.tables.search_terms import ParsedQuery, SearchTerm, parse_query, plain_words
from talaria.storage.tables.snippets import SnippetMaker
from talaria.storage.tables.sql import Sql

_INDEXED_CHARACTERS = 200_000  # a tsvector is limited to 1 MB
_WORD_CHARACTERS = 500  # a word in a tsvector is limited to 2 KB


class PostgresArrivals:
    """`ArrivalLog` implementation that stores the search vector with each message."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def note(self, message_id: int, parts: tuple[Part, ...]) -> int:
        """Add a message and return its arrival number."""
        words = " ".join(word[:_WORD_CHARACTERS] for word in plain_words(text_of(parts)[:_INDEXED_CHARACTERS]))
        row = self._sql.row(
            "INSERT INTO arrivals (message_id, words) VALUES (?, to_tsvector('plain_words', ?)) RETURNING number",
            (message_id, words),
        )
        assert row is not None
        return int(row[0])

    def add_copy(self, message_id: int, copy_id: int) -> int:
        """Add a copy of a stored message and return the arrival number of the copy."""
        row = self._sql.row(
            "INSERT INTO arrivals (message_id, words) SELECT ?, words FROM arrivals"
            " WHERE number = (SELECT arrival FROM messages WHERE id = ?) RETURNING number",
            (copy_id, message_id),
        )
        assert row is not None
        return int(row[0])

    def forget(self, first_id: int, last_id: int) -> None:
        """Remove the messages in a range of ids; call before they are deleted."""
        self._sql.run(
            "DELETE FROM arrivals WHERE number IN (SELECT arrival FROM messages WHERE id BETWEEN ? AND ?)",
            (first_id, last_id),
        )


class PostgresSearch:
    """`Search` implementation with ``tsvector``."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def find(self, query: SearchQuery) -> list[Hit]:
        """Return the best matches, highest score first; a query without words returns none."""
        parsed = parse_query(query.text)
        if not parsed.groups:
            return []
        conditions, values = build_filters(query)
        expression = format_tsquery(parsed)
        rows = self._sql.rows(
            "SELECT number, ts_rank_cd(words, to_tsquery('plain_words', ?)) AS score"
            " FROM (SELECT arrivals.number, words"
            f" FROM arrivals{JOINS if conditions else ''} WHERE words @@ to_tsquery('plain_words', ?){conditions}"
            " ORDER BY arrivals.number DESC LIMIT ?) AS newest ORDER BY score DESC, number DESC LIMIT ?",
            (expression, expression, *values, RANKED_LIMIT, query.limit),
        )
        return make_hits(self._sql, self._snippets, parsed, [(number, score) for number, score in rows])

    def unindexed(self) -> int:
        """Return 0: messages are indexed when they are stored."""
        return 0

    def catch_up(self, count: int = 200) -> int:
        """Return 0: messages are indexed when they are stored."""
        return 0

    @cached_property
    def _snippets(self) -> SnippetMaker:
        return SnippetMaker()


def format_tsquery(query: ParsedQuery) -> str:
    """Return the query in ``to_tsquery`` syntax."""
    expression = " & ".join(f"({' | '.join(map(_format_term, group))})" for group in query.groups)
    excluded = "".join(f" & !({_format_term(term)})" for term in query.excluded)
    return expression + excluded


def _format_term(term: SearchTerm) -> str:
    words = [f"'{word}'" for word in plain_words(term.text)]
    return " <-> ".join(words) + (":*" if term.prefix else "")

"""The words around a match, marked: made by SQLite's own tokenizer, for every engine alike."""

from collections.abc import Sequence
from typing import Any

import apsw

from talaria.storage.words import Query, Term, seamed, unseamed

TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co So Mn Mc'"
_WORDS = 24
_LENGTH = 50_000
_OPEN, _CLOSE = "\ue000", "\ue001"  # of the private use area, so they cannot be in anybody's text


class Snippets:
    """A small index in memory that holds a few texts while they are looked at."""

    def __init__(self) -> None:
        self._index = apsw.Connection(":memory:")
        self._index.execute(f'CREATE VIRTUAL TABLE texts USING fts5 (text, tokenize = "{TOKENIZER}")')

    def mark(self, texts: Sequence[str], query: Query) -> list[str]:
        """Return a snippet of each text, its matching words between ``[`` and ``]``."""
        snippets = [" ".join(text[:160].split()) for text in texts]
        call = f"snippet(texts, 0, '{_OPEN}', '{_CLOSE}', '…', {_WORDS})"
        for place, snippet in self._look(texts, call, query):
            joined = unseamed(snippet).replace(_CLOSE + _OPEN, "")
            snippets[place] = " ".join(joined.replace(_OPEN, "[").replace(_CLOSE, "]").split())
        return snippets

    def score(self, texts: Sequence[str], query: Query) -> list[tuple[int, float]]:
        """Return the places of the texts that fit, each with a score: more is better."""
        return self._look(texts, "-bm25(texts)", query)

    def _look(self, texts: Sequence[str], expression: str, query: Query) -> list[tuple[int, Any]]:
        self._index.execute("BEGIN")
        try:
            self._index.executemany(
                "INSERT INTO texts (rowid, text) VALUES (?, ?)",
                ((place, seamed(text[:_LENGTH])) for place, text in enumerate(texts)),
            )
            statement = f"SELECT rowid, {expression} FROM texts WHERE texts MATCH ?"
            found: list[Any] = self._index.execute(statement, (match_expression(query),)).fetchall()
            return found
        finally:
            self._index.execute("ROLLBACK")


def match_expression(query: Query) -> str:
    """Return the query as FTS5 spells it."""
    wanted = " AND ".join(f"({' OR '.join(map(_spelled, group))})" for group in query.groups)
    excluded = " OR ".join(map(_spelled, query.excluded))
    return f"({wanted}) NOT ({excluded})" if excluded else wanted


def _spelled(term: Term) -> str:
    phrase = seamed(term.text).replace('"', " ")
    return f'"{phrase}" *' if term.prefix else f'"{phrase}"'

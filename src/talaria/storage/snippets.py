"""The words around a match, marked: made by SQLite's own tokenizer, for every engine alike."""

import shlex
from collections.abc import Sequence
from typing import Any, cast

import apsw
from msgspec import Struct

from talaria.storage.words import Query, Term, seamed, unseamed

TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co So Mn Mc'"
_WORDS = 24
_STRETCH = 25_000  # characters; so much of a long text is read further on, as long as nothing is found
_COMPARED = 50  # of many matches in a text the first few decide which part of it is shown


class _Phrase(Struct, frozen=True):
    """The stems of a term's words; with ``prefix`` the last is only the beginning of one."""

    stems: list[str]
    prefix: bool


class _Match(Struct, frozen=True, order=True):
    """The words ``first`` to ``last`` of a text are the phrase with this number."""

    first: int
    last: int
    phrase: int


class Snippets:
    """SQLite's tokenizer, and a small index in memory that holds a few texts while they are looked at."""

    def __init__(self) -> None:
        self._index = apsw.Connection(":memory:")
        self._index.execute(f'CREATE VIRTUAL TABLE texts USING fts5 (text, tokenize = "{TOKENIZER}")')
        name, *options = shlex.split(TOKENIZER)
        self._tokenize = self._index.fts5_tokenizer(name, options)

    def mark(self, texts: Sequence[str], query: Query) -> list[str]:
        """Return a snippet of each text, its matching words between ``[`` and ``]``."""
        phrases = [self._phrase(term) for group in query.groups for term in group]
        return [self._snippet(text, phrases) for text in texts]

    def score(self, texts: Sequence[str], query: Query) -> list[tuple[int, float]]:
        """Return the places of the texts that fit, each with a score: more is better."""
        return self._look(texts, "-bm25(texts)", query)

    def _phrase(self, term: Term) -> _Phrase:
        reason = apsw.FTS5_TOKENIZE_QUERY | (apsw.FTS5_TOKENIZE_PREFIX if term.prefix else 0)
        return _Phrase([stem for _, _, stem in self._words(seamed(term.text).encode(), reason)], term.prefix)

    def _snippet(self, text: str, phrases: Sequence[_Phrase]) -> str:
        stretches = (text[start : start + 2 * _STRETCH] for start in range(0, len(text), _STRETCH))
        marked = (self._marked(stretch, phrases) for stretch in stretches)
        return next(filter(None, marked), _on_one_line(text[:160]))

    def _marked(self, text: str, phrases: Sequence[_Phrase]) -> str:
        """Return the part of a text that meets the most phrases, or nothing if it meets none."""
        encoded = seamed(text).encode()
        words = self._words(encoded, apsw.FTS5_TOKENIZE_DOCUMENT)
        matches = _matches([stem for _, _, stem in words], phrases)
        if not matches:
            return ""
        begin, end = _window(matches, len(words))
        before, at = ("…", words[begin][0]) if begin else ("", 0)
        behind, stop = ("…", words[end - 1][1]) if end < len(words) else ("", len(encoded))
        pieces = [before]
        for first, last in _spans(encoded, words, [one for one in matches if begin <= one.first and one.last < end]):
            pieces += [encoded[at:first].decode(), "[", encoded[first:last].decode(), "]"]
            at = last
        return _on_one_line(unseamed("".join([*pieces, encoded[at:stop].decode(), behind])))

    def _words(self, encoded: bytes, reason: int) -> list[tuple[int, int, str]]:
        """Return the first byte of each word, the one behind it, and its stem."""
        return cast("list[tuple[int, int, str]]", self._tokenize(encoded, reason, None))

    def _look(self, texts: Sequence[str], expression: str, query: Query) -> list[tuple[int, Any]]:
        self._index.execute("BEGIN")
        try:
            self._index.executemany(
                "INSERT INTO texts (rowid, text) VALUES (?, ?)",
                ((place, seamed(text)) for place, text in enumerate(texts)),
            )
            statement = f"SELECT rowid, {expression} FROM texts WHERE texts MATCH ?"
            found: list[Any] = self._index.execute(statement, (match_expression(query),)).fetchall()
            return found
        finally:
            self._index.execute("ROLLBACK")


def _matches(stems: Sequence[str], phrases: Sequence[_Phrase]) -> list[_Match]:
    return sorted(
        _Match(place - len(phrase.stems) + 1, place, number)
        for number, phrase in enumerate(phrases)
        for place in _ends(stems, phrase)
    )


def _ends(stems: Sequence[str], phrase: _Phrase) -> list[int]:
    """Return the places of the last words of a phrase."""
    if not phrase.stems:
        return []
    *head, tail = phrase.stems
    if phrase.prefix:
        places = [place for place, stem in enumerate(stems) if stem.startswith(tail)]
    else:
        places = [place for place, stem in enumerate(stems) if stem == tail]
    length = len(head)
    return [place for place in places if place >= length and stems[place - length : place] == head] if head else places


def _window(matches: Sequence[_Match], count: int) -> tuple[int, int]:
    """Return the stretch of words in which the most phrases are met, with what was found in its middle."""
    compared = matches[:_COMPARED]
    found = max((_reach(compared, place) for place in range(len(compared))), key=lambda reach: reach.phrase)
    slack = max(0, _WORDS - 1 - (found.last - found.first))
    begin = max(0, min(found.first - slack // 2, count - _WORDS))
    return begin, min(begin + _WORDS, count)


def _reach(matches: Sequence[_Match], place: int) -> _Match:
    """Return a match with those behind it that are shown together with it, and how many phrases they meet."""
    first = matches[place].first
    together = [one for one in matches[place:] if one.last < first + _WORDS] or [matches[place]]
    return _Match(first, max(one.last for one in together), len({one.phrase for one in together}))


def _spans(encoded: bytes, words: Sequence[tuple[int, int, str]], matches: Sequence[_Match]) -> list[tuple[int, int]]:
    """Return the first byte of each match and the one behind it; matches with no text between them are one."""
    spans: list[tuple[int, int]] = []
    for match in matches:
        first, last = words[match.first][0], words[match.last][1]
        if spans and not unseamed(encoded[spans[-1][1] : first].decode()):
            spans[-1] = (spans[-1][0], max(spans[-1][1], last))
        else:
            spans.append((first, last))
    return spans


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def match_expression(query: Query) -> str:
    """Return the query as FTS5 spells it."""
    wanted = " AND ".join(f"({' OR '.join(map(_spelled, group))})" for group in query.groups)
    excluded = " OR ".join(map(_spelled, query.excluded))
    return f"({wanted}) NOT ({excluded})" if excluded else wanted


def _spelled(term: Term) -> str:
    phrase = seamed(term.text).replace('"', " ")
    return f'"{phrase}" *' if term.prefix else f'"{phrase}"'

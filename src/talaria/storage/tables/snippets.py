"""Search snippets with marked matches; uses SQLite's tokenizer for every engine."""

import shlex
from collections.abc import Sequence
from typing import Any, cast

import apsw
from msgspec import Struct

from talaria.storage.tables.search import ParsedQuery, SearchTerm, add_separators, format_match, remove_separators

TOKENIZER = "porter unicode61 remove_diacritics 2 categories 'L* N* Co So Mn Mc'"
_SNIPPET_WORDS = 24
_SEGMENT_CHARACTERS = 25_000  # step by which a long text is searched until a match is found
_MAX_COMPARED = 50  # only the first matches decide which part of a text is shown


class _Phrase(Struct, frozen=True):
    """Word stems of a search term; with ``prefix`` the last one matches as a prefix."""

    stems: list[str]
    prefix: bool


class _Match(Struct, frozen=True, order=True):
    """Occurrence of phrase number ``phrase`` at the words ``first`` to ``last``, inclusive."""

    first: int
    last: int
    phrase: int


class SnippetMaker:
    """SQLite tokenizer with a small in-memory index for scoring texts."""

    def __init__(self) -> None:
        self._index = apsw.Connection(":memory:")
        self._index.execute(f'CREATE VIRTUAL TABLE texts USING fts5 (text, tokenize = "{TOKENIZER}")')
        name, *options = shlex.split(TOKENIZER)
        self._tokenize = self._index.fts5_tokenizer(name, options)

    def mark(self, texts: Sequence[str], query: ParsedQuery) -> list[str]:
        """Return a snippet of each text, with matching words between ``[`` and ``]``."""
        phrases = [self._make_phrase(term) for group in query.groups for term in group]
        return [self._make_snippet(text, phrases) for text in texts]

    def score(self, texts: Sequence[str], query: ParsedQuery) -> list[tuple[int, float]]:
        """Return (position, score) for each matching text; higher scores are better."""
        return self._query_index(texts, "-bm25(texts)", query)

    def _make_phrase(self, term: SearchTerm) -> _Phrase:
        reason = apsw.FTS5_TOKENIZE_QUERY | (apsw.FTS5_TOKENIZE_PREFIX if term.prefix else 0)
        return _Phrase(
            [stem for _, _, stem in self._tokenize_text(add_separators(term.text).encode(), reason)], term.prefix
        )

    def _make_snippet(self, text: str, phrases: Sequence[_Phrase]) -> str:
        segments = (text[start : start + 2 * _SEGMENT_CHARACTERS] for start in range(0, len(text), _SEGMENT_CHARACTERS))
        marked = (self._mark_matches(segment, phrases) for segment in segments)
        return next(filter(None, marked), _join_lines(text[:160]))

    def _mark_matches(self, text: str, phrases: Sequence[_Phrase]) -> str:
        """Return the marked part of a text that matches the most phrases, or an empty string."""
        encoded = add_separators(text).encode()
        words = self._tokenize_text(encoded, apsw.FTS5_TOKENIZE_DOCUMENT)
        matches = _find_matches([stem for _, _, stem in words], phrases)
        if not matches:
            return ""
        begin, end = _choose_window(matches, len(words))
        before, at = ("…", words[begin][0]) if begin else ("", 0)
        after, stop = ("…", words[end - 1][1]) if end < len(words) else ("", len(encoded))
        pieces = [before]
        for first, last in _merge_spans(
            encoded, words, [one for one in matches if begin <= one.first and one.last < end]
        ):
            pieces += [encoded[at:first].decode(), "[", encoded[first:last].decode(), "]"]
            at = last
        return _join_lines(remove_separators("".join([*pieces, encoded[at:stop].decode(), after])))

    def _tokenize_text(self, encoded: bytes, reason: int) -> list[tuple[int, int, str]]:
        """Return (start byte, end byte, stem) for each word; the end is exclusive."""
        return cast("list[tuple[int, int, str]]", self._tokenize(encoded, reason, None))

    def _query_index(self, texts: Sequence[str], expression: str, query: ParsedQuery) -> list[tuple[int, Any]]:
        self._index.execute("BEGIN")
        try:
            self._index.executemany(
                "INSERT INTO texts (rowid, text) VALUES (?, ?)",
                ((position, add_separators(text)) for position, text in enumerate(texts)),
            )
            statement = f"SELECT rowid, {expression} FROM texts WHERE texts MATCH ?"
            found: list[Any] = self._index.execute(statement, (format_match(query),)).fetchall()
            return found
        finally:
            self._index.execute("ROLLBACK")


def _find_matches(stems: Sequence[str], phrases: Sequence[_Phrase]) -> list[_Match]:
    return sorted(
        _Match(position - len(phrase.stems) + 1, position, number)
        for number, phrase in enumerate(phrases)
        for position in _find_ends(stems, phrase)
    )


def _find_ends(stems: Sequence[str], phrase: _Phrase) -> list[int]:
    """Return the positions of the last word of each occurrence of a phrase."""
    if not phrase.stems:
        return []
    *head, tail = phrase.stems
    if phrase.prefix:
        positions = [position for position, stem in enumerate(stems) if stem.startswith(tail)]
    else:
        positions = [position for position, stem in enumerate(stems) if stem == tail]
    length = len(head)
    return (
        [position for position in positions if position >= length and stems[position - length : position] == head]
        if head
        else positions
    )


def _choose_window(matches: Sequence[_Match], count: int) -> tuple[int, int]:
    """Return the range of words that matches the most phrases, centred on the matches; the end is exclusive."""
    compared = matches[:_MAX_COMPARED]
    found = max(
        (_extend_match(compared, position) for position in range(len(compared))), key=lambda reach: reach.phrase
    )
    slack = max(0, _SNIPPET_WORDS - 1 - (found.last - found.first))
    begin = max(0, min(found.first - slack // 2, count - _SNIPPET_WORDS))
    return begin, min(begin + _SNIPPET_WORDS, count)


def _extend_match(matches: Sequence[_Match], position: int) -> _Match:
    """Merge a match with the following ones that fit into one snippet.

    In the result ``phrase`` is the number of different phrases, not the number of a phrase.
    """
    first = matches[position].first
    together = [one for one in matches[position:] if one.last < first + _SNIPPET_WORDS] or [matches[position]]
    return _Match(first, max(one.last for one in together), len({one.phrase for one in together}))


def _merge_spans(
    encoded: bytes, words: Sequence[tuple[int, int, str]], matches: Sequence[_Match]
) -> list[tuple[int, int]]:
    """Return (start byte, end byte) for each match; adjacent matches without text between them are merged."""
    spans: list[tuple[int, int]] = []
    for match in matches:
        first, last = words[match.first][0], words[match.last][1]
        if spans and not remove_separators(encoded[spans[-1][1] : first].decode()):
            spans[-1] = (spans[-1][0], max(spans[-1][1], last))
        else:
            spans.append((first, last))
    return spans


def _join_lines(text: str) -> str:
    return " ".join(text.split())

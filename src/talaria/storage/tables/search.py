"""Search code shared by all engines: words of texts, parsed queries, filters, and hits from index results.

In scripts written without spaces, and among pictographs, each character counts as a word. A word of one or two
characters is therefore found anywhere, as a phrase of its characters.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import cache

from msgspec import Struct

from talaria.contracts.stores.sessions import Hit, SearchQuery
from talaria.storage.tables.sessions import SEQ_BITS, build_visibility, searchable_text
from talaria.storage.tables.sql import Sql, Value, from_stamp, to_stamp

_SEPARATOR = "\u200b"  # zero-width space: separates words and can be removed again
_ACCENTS = re.compile("[\u0300-\u036f]")
_VARIANTS = re.compile("[\ufe00-\ufe0f]")  # select only the display style of the preceding character
_TYPED = re.compile(r'(-?)(?:"([^"]*)"?|([^\s"]+))')
RANKED_LIMIT = 2000  # only this many of the newest matches are ranked
JOINS = (
    " JOIN messages ON messages.id = arrivals.message_id"
    f" JOIN sessions ON sessions.number = (messages.id >> {SEQ_BITS})"
)


class SearchTerm(Struct, frozen=True):
    """Phrase of adjacent words; with ``prefix`` the last word matches as a prefix."""

    text: str
    prefix: bool = False


class ParsedQuery(Struct, frozen=True):
    """Search query: one term of each group must match and no excluded term may match."""

    groups: tuple[tuple[SearchTerm, ...], ...]
    excluded: tuple[SearchTerm, ...] = ()


def parse_query(typed: str) -> ParsedQuery:
    """Parse a query; characters that are not valid operators count as words or are dropped.

    Supports quoted phrases, ``-`` for exclusion, ``OR`` and a trailing ``*`` for prefixes. Never raises.
    """
    groups: list[list[SearchTerm]] = []
    excluded: list[SearchTerm] = []
    is_alternative = False
    for minus, phrase, word in _TYPED.findall(_clean(typed)):
        if word == "OR" and groups:
            is_alternative = True
            continue
        term = SearchTerm(phrase or word.rstrip("*"), prefix=word.endswith("*"))
        if not has_words(term.text):
            continue
        if minus:
            excluded.append(term)
        elif is_alternative:
            groups[-1].append(term)
        else:
            groups.append([term])
        is_alternative = False
    return ParsedQuery(tuple(map(tuple, groups)), tuple(excluded))


def has_words(text: str) -> bool:
    """Return whether a text contains any searchable word."""
    return bool(plain_words(text))


def has_phrases(query: ParsedQuery) -> bool:
    """Return whether any term has several words, as Chinese words with several characters do."""
    terms = (term for group in (*query.groups, query.excluded) for term in group)
    return any(len(plain_words(term.text)) > 1 for term in terms)


def format_match(query: ParsedQuery) -> str:
    """Return the query in FTS5 syntax."""
    required = " AND ".join(f"({' OR '.join(map(_format_term, group))})" for group in query.groups)
    excluded = " OR ".join(map(_format_term, query.excluded))
    return f"({required}) NOT ({excluded})" if excluded else required


def add_separators(text: str) -> str:
    """Return the text with separators around characters that are words of their own.

    Text that is not ASCII is also normalized to NFKC.
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", text).translate(_SEPARATED)


def remove_separators(text: str) -> str:
    """Return the text without the separators of `add_separators`."""
    return text.replace(_SEPARATOR, "")


def plain_words(text: str) -> list[str]:
    """Return the words of a text, case-folded and without accents and punctuation."""
    if not text.isascii():
        text = _VARIANTS.sub("", _ACCENTS.sub("", unicodedata.normalize("NFKD", text)))
        text = _compile_single_words().sub(" \\1 ", unicodedata.normalize("NFC", text))
    return text.casefold().translate(_PLAIN).split()


class _PlainCharacters(dict[int, str]):
    """Cached translation: letters, digits and marks unchanged, symbols as numbers, everything else as spaces.

    A mark that is a word of its own is also written as a number, because some server locales do not treat it as a word.
    """

    def __missing__(self, code: int) -> str:
        category = unicodedata.category(chr(code))
        if category == "So" or (category[0] == "M" and _compile_single_words().match(chr(code))):
            plain = f" u{code:x} "
        elif category[0] in "LN" or category in ("Co", "Mn", "Mc"):
            plain = chr(code)
        else:
            plain = " "
        self[code] = plain
        return plain


class _SeparatedCharacters(dict[int, str]):
    """Cached translation that surrounds characters that are words of their own with separators."""

    def __missing__(self, code: int) -> str:
        character = _VARIANTS.sub("", chr(code))
        self[code] = f"{_SEPARATOR}{character}{_SEPARATOR}" if _compile_single_words().match(character) else character
        return self[code]


_PLAIN = _PlainCharacters()
_SEPARATED = _SeparatedCharacters()
MarkMatches = Callable[[Sequence[str], ParsedQuery], list[str]]  # snippets of texts, with matching words marked


def build_filters(query: SearchQuery) -> tuple[str, list[Value]]:
    """Return conditions on ``messages`` and ``sessions``, each prefixed with ``AND``, and their values."""
    conditions: list[tuple[str, Value]] = [("sessions.source = ?", query.source)] if query.source else []
    if query.role is not None:
        conditions.append(("messages.role = ?", query.role))
    if query.session_id is not None:
        conditions.append(("sessions.id = ?", query.session_id))
    if query.owner is not None:
        conditions.append(("sessions.owner = ?", query.owner))
    conditions += [(f"sessions.{condition}", value) for condition, value in build_visibility(query.seen_by)]
    if query.since is not None:
        conditions.append(("messages.at >= ?", to_stamp(query.since)))
    if query.until is not None:
        conditions.append(("messages.at < ?", to_stamp(query.until)))
    return "".join(f" AND {condition}" for condition, _ in conditions), [value for _, value in conditions]


def make_hits(sql: Sql, mark: MarkMatches, query: ParsedQuery, scored: Sequence[tuple[int, float]]) -> list[Hit]:
    """Build hits from (arrival number, score) pairs, in the given order."""
    if not scored:
        return []
    rows = sql.rows(
        "SELECT arrivals.number, sessions.id, sessions.title, messages.id, messages.role, messages.at, messages.body"
        f" FROM arrivals{JOINS} WHERE arrivals.number IN ({', '.join('?' * len(scored))})",
        [number for number, _ in scored],
    )
    by_number = {number: columns for number, *columns in rows}
    found = [(by_number[number], score) for number, score in scored if number in by_number]
    marked = mark([searchable_text(row[5]) for row, _ in found], query)
    return [
        Hit(
            session_id=session_id,
            session_title=title,
            seq=message_id & ((1 << SEQ_BITS) - 1),
            role=role,
            at=from_stamp(at),
            snippet=snippet,
            score=score,
        )
        for ((session_id, title, message_id, role, at, _), score), snippet in zip(found, marked, strict=True)
    ]


def _format_term(term: SearchTerm) -> str:
    phrase = add_separators(term.text).replace('"', " ")
    return f'"{phrase}" *' if term.prefix else f'"{phrase}"'


def _clean(typed: str) -> str:
    """Replace characters that no engine accepts: NUL, and lone surrogates from undecodable arguments."""
    return typed.replace("\0", " ").encode(errors="replace").decode()


@cache
def _compile_single_words() -> re.Pattern[str]:
    """Return the pattern for characters that are words of their own; compiled on first use, because it is slow."""
    # Thai to Myanmar, Khmer, kana, ideographs, Hangul, pictographs; planes 2 and 3 are ideographs throughout.
    return re.compile(
        "([\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2600-\u27bf\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff"
        "\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
        "\U0001f000-\U0001faff\U00020000-\U0003ffff])"
    )

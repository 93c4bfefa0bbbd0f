"""What counts as a word, in text and in what a person types to find it.

Scripts that are written without spaces, and pictographs, count each character as a word of its own, so that a
word of one or two characters is found wherever it stands: as a phrase of its characters.
"""

import re
import unicodedata
from functools import cache

from msgspec import Struct

_SEAM = "\u200b"  # a zero-width space: parts words, and can be taken out again without a trace
_ACCENTS = re.compile("[\u0300-\u036f]")
_VARIANTS = re.compile("[\ufe00-\ufe0f]")  # say only in which style the character before them is shown
_TYPED = re.compile(r'(-?)(?:"([^"]*)"?|([^\s"]+))')


class Term(Struct, frozen=True):
    """Words that stand side by side; with ``prefix`` the last is only the beginning of one."""

    text: str
    prefix: bool = False


class Query(Struct, frozen=True):
    """Each group must be met by one of its terms, and none of ``excluded`` may occur."""

    groups: tuple[tuple[Term, ...], ...]
    excluded: tuple[Term, ...] = ()


def parse_query(typed: str) -> Query:
    """Read what a person typed; whatever has no meaning as an operator is taken as words or left out."""
    groups: list[list[Term]] = []
    excluded: list[Term] = []
    choice = False
    for minus, phrase, word in _TYPED.findall(_readable(typed)):
        if word == "OR" and groups:
            choice = True
            continue
        term = Term(phrase or word.rstrip("*"), prefix=word.endswith("*"))
        if not has_words(term.text):
            continue
        if minus:
            excluded.append(term)
        elif choice:
            groups[-1].append(term)
        else:
            groups.append([term])
        choice = False
    return Query(tuple(map(tuple, groups)), tuple(excluded))


def has_words(text: str) -> bool:
    """Tell whether there is anything in a text that search could find."""
    return bool(plain_words(text))


def has_phrases(query: Query) -> bool:
    """Tell whether words must stand side by side, as the characters of a Chinese word do."""
    terms = (term for group in (*query.groups, query.excluded) for term in group)
    return any(len(plain_words(term.text)) > 1 for term in terms)


def seamed(text: str) -> str:
    """Return the text with seams around the characters that are words of their own; `unseamed` undoes it."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", text).translate(_SEAMED)


def unseamed(text: str) -> str:
    """Return the text without seams."""
    return text.replace(_SEAM, "")


def plain_words(text: str) -> list[str]:
    """Return the words of a text, without case, accents and punctuation."""
    if not text.isascii():
        text = _VARIANTS.sub("", _ACCENTS.sub("", unicodedata.normalize("NFKD", text)))
        text = _solitary().sub(" \\1 ", unicodedata.normalize("NFC", text))
    return text.casefold().translate(_PLAIN).split()


def _readable(typed: str) -> str:
    """Return what was typed without what no engine takes: NUL, and halves of characters that a shell passes on."""
    return typed.replace("\0", " ").encode(errors="replace").decode()


@cache
def _solitary() -> re.Pattern[str]:
    """Return what finds one character that is a word of its own; made at first use, because that takes a while."""
    # Thai to Myanmar, Khmer, kana, ideographs, Hangul, pictographs; planes 2 and 3 are ideographs throughout.
    return re.compile(
        "([\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2600-\u27bf\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff"
        "\u3130-\u318f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff"
        "\U0001f000-\U0001faff\U00020000-\U0003ffff])"
    )


class _PlainCharacters(dict[int, str]):
    """Letters, digits and marks as they are, symbols by number, all else a space; learnt as they come.

    A mark that is a word of its own goes by number too: not every locale of a server takes it for a word.
    """

    def __missing__(self, code: int) -> str:
        category = unicodedata.category(chr(code))
        if category == "So" or (category[0] == "M" and _solitary().match(chr(code))):
            plain = f" u{code:x} "
        elif category[0] in "LN" or category in ("Co", "Mn", "Mc"):
            plain = chr(code)
        else:
            plain = " "
        self[code] = plain
        return plain


class _SeamedCharacters(dict[int, str]):
    """Characters that are words of their own between seams, all others as they are; learnt as they come."""

    def __missing__(self, code: int) -> str:
        character = _VARIANTS.sub("", chr(code))
        self[code] = f"{_SEAM}{character}{_SEAM}" if _solitary().match(character) else character
        return self[code]


_PLAIN = _PlainCharacters()
_SEAMED = _SeamedCharacters()

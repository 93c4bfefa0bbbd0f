"""Where a text may be cut: between characters as people see them, and not within a link."""

import re
import unicodedata

_JOINER = "\u200d"
_MARKS = {"Mn", "Mc", "Me"}
_LINK = re.compile(
    r"""!?\[(?:[^\]\n]|\n(?![ \t]*\n)){0,1000}\]\([^()\s]*(?:\([^()\s]*\)[^()\s]*)*(?:[ ]+"[^"\n]{0,500}")?\)
    | <[a-z][a-z0-9+.-]{1,30}:[^<>\s]+>
    | (?:https?://|www\.)\S+""",
    re.VERBOSE | re.IGNORECASE,
)


def is_border(text: str, place: int) -> bool:
    """Tell whether two characters meet here that are not one to the eye, such as those of a flag or a syllable."""
    if not 0 < place < len(text):
        return True
    before, behind = text[place - 1], text[place]
    if behind.isascii():
        return before != "\r" or behind != "\n"
    if before == _JOINER or behind == _JOINER or unicodedata.category(behind) in _MARKS:
        return False
    if _is_modifier(behind) or (_is_jamo(before) and _is_jamo(behind)):
        return False
    return not (_is_flag_letter(behind) and _flag_letters_before(text, place) % 2)


def links(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return where links begin and end in a part of a text, in order."""
    return [match.span() for match in _LINK.finditer(text, start, end)]


def _is_modifier(character: str) -> bool:
    """Tell whether this changes the emoji before it: a tone of skin, or a letter of the flag of a region."""
    return "\U0001f3fb" <= character <= "\U0001f3ff" or "\U000e0020" <= character <= "\U000e007f"


def _is_jamo(character: str) -> bool:
    return "\u1100" <= character <= "\u11ff"


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flag_letters_before(text: str, place: int) -> int:
    first = place
    while first and _is_flag_letter(text[first - 1]):
        first -= 1
    return place - first

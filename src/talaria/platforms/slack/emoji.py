"""Convert emoji to Slack's names and back."""

import re
import unicodedata
from functools import cache
from pathlib import Path

from msgspec import Struct

_EMOJI_VARIATION = "\ufe0f"  # asks for the coloured form of an emoji; the table is without
_TONES = dict(zip("🏻🏼🏽🏾🏿", ("2", "3", "4", "5", "6"), strict=True))
_TONE = re.compile("::skin-tone-([2-6])$")
FALLBACK_NAME = "eyes"


class _Table(Struct, frozen=True):
    """Names by emoji, and emoji by name."""

    names: dict[str, str]
    emoji: dict[str, str]


@cache
def _table() -> _Table:
    """Read the table: an emoji in each line, then its names, of which Slack sends the first."""
    lines = Path(__file__).with_name("emoji.txt").read_text(encoding="utf-8").splitlines()
    entries = [line.split() for line in lines]
    return _Table(
        {sign: emoji_names[0] for sign, *emoji_names in entries},
        {one: sign for sign, *emoji_names in entries for one in emoji_names},
    )


def names_for(emoji: str) -> list[str]:
    """Return the names to mark a message with for an emoji, the best first; the last one always exists."""
    plain = emoji.strip().replace(_EMOJI_VARIATION, "")
    if plain.startswith(":") and plain.endswith(":") and len(plain) > 2:
        return list(dict.fromkeys([plain.strip(":"), FALLBACK_NAME]))
    tone = next((_TONES[one] for one in plain if one in _TONES), "")
    bare = "".join(one for one in plain if one not in _TONES)
    known = _table().names.get(bare)
    named = known or _unicode_name(bare)
    toned = [f"{known}::skin-tone-{tone}"] if known and tone else []
    return list(dict.fromkeys([*toned, *([named] if named else []), FALLBACK_NAME]))


def emoji_for(name: str) -> str:
    """Return the emoji of a name; a custom one of the workspace stays a name, between colons."""
    tone = _TONE.search(name)
    bare = _TONE.sub("", name)
    found = _table().emoji.get(bare) or _by_unicode_name(bare)
    if not found:
        return f":{bare}:"
    shade = next(sign for sign, number in _TONES.items() if number == tone[1]) if tone else ""
    return found + shade


def _unicode_name(emoji: str) -> str:
    """Return the Unicode name, which is often the same."""
    if len(emoji) != 1:
        return ""
    return re.sub(r"[^a-z0-9]+", "_", unicodedata.name(emoji, "").lower()).strip("_")


def _by_unicode_name(name: str) -> str:
    try:
        found = unicodedata.lookup(re.sub("[_-]", " ", name).upper())
    except (KeyError, ValueError):
        return ""
    return found if unicodedata.category(found[0]) == "So" else ""

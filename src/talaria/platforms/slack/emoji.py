"""Emoji by the names that Slack has for them, and back."""

import re
import unicodedata
from functools import cache
from pathlib import Path

from msgspec import Struct

_COLOURED = "\ufe0f"  # asks for the coloured form of an emoji; here they are known without
_TONES = dict(zip("🏻🏼🏽🏾🏿", ("2", "3", "4", "5", "6"), strict=True))
_TONE = re.compile("::skin-tone-([2-6])$")
STAND_IN = "eyes"


class _Table(Struct, frozen=True):
    """The names of emoji, and the emoji of names."""

    names: dict[str, str]
    emoji: dict[str, str]


@cache
def _table() -> _Table:
    """Read the table: an emoji in each line, then its names, of which Slack tells the first."""
    lines = Path(__file__).with_name("emoji.txt").read_text(encoding="utf-8").splitlines()
    entries = [line.split() for line in lines]
    return _Table({sign: all_[0] for sign, *all_ in entries}, {one: sign for sign, *all_ in entries for one in all_})


def names_for(emoji: str) -> list[str]:
    """Return what to mark a message with for an emoji, the best first; the last one there is everywhere."""
    plain = emoji.strip().replace(_COLOURED, "")
    if plain.startswith(":") and plain.endswith(":") and len(plain) > 2:
        return list(dict.fromkeys([plain.strip(":"), STAND_IN]))
    tone = next((_TONES[one] for one in plain if one in _TONES), "")
    bare = "".join(one for one in plain if one not in _TONES)
    known = _table().names.get(bare)
    named = known or _unicode_name(bare)
    wanted = [f"{known}::skin-tone-{tone}"] if known and tone else []
    return list(dict.fromkeys([*wanted, *([named] if named else []), STAND_IN]))


def emoji_for(name: str) -> str:
    """Return the emoji of a name; one that only this workspace knows stays a name, between colons."""
    tone = _TONE.search(name)
    bare = _TONE.sub("", name)
    found = _table().emoji.get(bare) or _by_unicode_name(bare)
    if not found:
        return f":{bare}:"
    shade = next(sign for sign, number in _TONES.items() if number == tone[1]) if tone else ""
    return found + shade


def _unicode_name(emoji: str) -> str:
    """Return the name that the character has elsewhere: often it is the same."""
    if len(emoji) != 1:
        return ""
    return re.sub(r"[^a-z0-9]+", "_", unicodedata.name(emoji, "").lower()).strip("_")


def _by_unicode_name(name: str) -> str:
    try:
        found = unicodedata.lookup(re.sub("[_-]", " ", name).upper())
    except (KeyError, ValueError):
        return ""
    return found if unicodedata.category(found[0]) == "So" else ""

"""Text as a terminal shows it: made harmless, measured in columns, cut to fit."""

import re
from unicodedata import category, east_asian_width

from talaria.core.harmless import HARMFUL

STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
RESET = "\x1b[0m"

_OWN_STYLE = rf"\x1b\[(?:0|{'|'.join(map(str, STYLES.values()))})m"
_FIND_STYLE = re.compile(_OWN_STYLE)
_FIND_EITHER = re.compile(f"{_OWN_STYLE}|{HARMFUL}")
_FIND_PIECE = re.compile(f"{_OWN_STYLE}|.", re.DOTALL)


def harmless(text: str, *, styled: bool = False) -> str:
    """Return text that cannot move the cursor, recolour the screen or hide what stands around it.

    Our own styles stay where ``styled`` says so and are dropped otherwise; every other control character is
    shown as an escape. Line breaks and tabs stay.
    """
    if text.isprintable():
        return text
    return _FIND_EITHER.sub(lambda found: _shown(found[0], styled=styled), text.replace("\r\n", "\n"))


def cell(text: str, *, styled: bool = False) -> str:
    """Return harmless text on one line."""
    return text if text.isprintable() else " ".join(harmless(text, styled=styled).split())


def columns(text: str) -> int:
    """Return how many columns a terminal needs for this text."""
    plain = _FIND_STYLE.sub("", text)
    return len(plain) if plain.isascii() else sum(map(_character_columns, plain))


def cut(text: str, width: int) -> str:
    """Return the text in at most ``width`` columns, with an ellipsis where some of it is missing."""
    if columns(text) <= width:
        return text
    kept: list[str] = []
    room = width - 1
    for piece in _FIND_PIECE.findall(text):
        room -= columns(piece)
        if room < 0:
            break
        kept.append(piece)
    return "".join(kept) + "…" + (RESET if "\x1b" in text else "")


def wrap(text: str, width: int) -> str:
    """Return the text with line breaks between words, so that no line is wider than ``width`` columns.

    Further lines begin under the first word of theirs. A word that is wider than a line stays whole: it may be a path
    or an address to be copied.
    """
    return "\n".join(piece for line in text.split("\n") for piece in _wrapped(line, width))


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return the text filled up with spaces to ``width`` columns, on the left where it is to stand at the right."""
    gap = " " * (width - columns(text))
    return gap + text if right else text + gap


def _wrapped(line: str, width: int) -> list[str]:
    if columns(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip(" "))]
    lines: list[str] = []
    for word in line.split(" "):
        if lines and columns(lines[-1]) + 1 + columns(word) <= width:
            lines[-1] += f" {word}"
        elif not lines:
            lines.append(word)
        elif lines[-1].strip():
            lines.append(indent + word)
        else:  # only the indent so far
            lines[-1] += f" {word}"
    return lines


def _shown(found: str, *, styled: bool) -> str:
    if len(found) > 1:
        return found if styled else ""
    return f"\\x{ord(found):02x}" if ord(found) < 256 else f"\\u{ord(found):04x}"


def _character_columns(character: str) -> int:
    if category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if east_asian_width(character) in {"W", "F"} else 1

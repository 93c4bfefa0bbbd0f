"""Terminal text: escaped, measured in columns, cut and wrapped."""

import re
from unicodedata import category, east_asian_width

from talaria.core.formatting import HARMFUL

STYLES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "cyan": 36}
RESET = "\x1b[0m"
_OWN_STYLE = rf"\x1b\[(?:0|{'|'.join(map(str, STYLES.values()))})m"
_STYLE_OR_HARMFUL = f"{_OWN_STYLE}|{HARMFUL}"
_STYLE_OR_CHARACTER = f"(?s:{_OWN_STYLE}|.)"


def escape_control(text: str, *, styled: bool = False) -> str:
    """Return text that cannot move the cursor, change colours or hide other text.

    Own styles are kept if ``styled`` and removed otherwise; all other control characters are escaped. Line breaks and
    tabs are kept.
    """
    if text.isprintable():
        return text
    return re.sub(_STYLE_OR_HARMFUL, lambda found: _escape_match(found[0], styled=styled), text.replace("\r\n", "\n"))


def format_cell(text: str, *, styled: bool = False) -> str:
    """Return escaped text on one line."""
    return text if text.isprintable() else " ".join(escape_control(text, styled=styled).split())


def display_width(text: str) -> int:
    """Return the columns of a text in a terminal."""
    plain = re.sub(_OWN_STYLE, "", text) if "\x1b" in text else text
    return len(plain) if plain.isascii() else sum(map(_count_columns, plain))


def cut(text: str, width: int) -> str:
    """Return the text in at most ``width`` columns, with an ellipsis if shortened."""
    if display_width(text) <= width:
        return text
    pieces: list[str] = []
    remaining = width - 1
    for piece in re.findall(_STYLE_OR_CHARACTER, text):
        remaining -= display_width(piece)
        if remaining < 0:
            break
        pieces.append(piece)
    return "".join(pieces) + "…" + (RESET if "\x1b" in text else "")


def wrap(text: str, width: int) -> str:
    """Return the text wrapped at words to ``width`` columns.

    Further lines are aligned with the first word of theirs. A word wider than a line is not broken: it may be a path
    or an address to copy.
    """
    return "\n".join(piece for line in text.split("\n") for piece in _wrap_line(line, width))


def pad(text: str, width: int, *, right: bool = False) -> str:
    """Return the text padded with spaces to ``width`` columns, on the left if right-aligned."""
    gap = " " * (width - display_width(text))
    return gap + text if right else text + gap


def _wrap_line(line: str, width: int) -> list[str]:
    if display_width(line) <= width:
        return [line]
    indent = line[: len(line) - len(line.lstrip(" "))]
    lines: list[str] = []
    for word in line.split(" "):
        if lines and display_width(lines[-1]) + 1 + display_width(word) <= width:
            lines[-1] += f" {word}"
        elif not lines:
            lines.append(word)
        elif lines[-1].strip():
            lines.append(indent + word)
        else:  # only the indent so far
            lines[-1] += f" {word}"
    return lines


def _escape_match(found: str, *, styled: bool) -> str:
    if len(found) > 1:
        return found if styled else ""
    return f"\\x{ord(found):02x}" if ord(found) < 256 else f"\\u{ord(found):04x}"


def _count_columns(character: str) -> int:
    if category(character) in {"Mn", "Me", "Cf"}:
        return 0
    return 2 if east_asian_width(character) in {"W", "F"} else 1

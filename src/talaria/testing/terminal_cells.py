"""The cells of a screen: content and appearance."""

from collections.abc import Iterator

from msgspec import Struct
from pyte.screens import Char, StaticDefaultDict, wcwidth

Line = StaticDefaultDict[int, Char]


class Cell(Struct, frozen=True):
    """One cell, ``width`` columns wide; a colour is ``default``, a name or six hexadecimal digits."""

    text: str = " "
    width: int = 1
    colour: str = "default"
    background: str = "default"
    bold: bool = False
    dim: bool = False
    italic: bool = False
    underlined: bool = False
    struck: bool = False
    reversed: bool = False


class Dim(Char):
    """A dim character, which pyte doesn't support."""


def text_of(line: Line, columns: int) -> str:
    """Return what a line says, without the blanks at its end."""
    return "".join(text for text, _, _ in _characters(line, columns)).rstrip()


def cells_of(line: Line, columns: int) -> Iterator[Cell]:
    """Yield the cells of a line, wide characters once."""
    for text, width, char in _characters(line, columns):
        yield Cell(
            text,
            width,
            _colour(char.fg),
            _colour(char.bg),
            bold=char.bold,
            dim=isinstance(char, Dim),
            italic=char.italics,
            underlined=char.underscore,
            struck=char.strikethrough,
            reversed=char.reverse,
        )


def _characters(line: Line, columns: int) -> Iterator[tuple[str, int, Char]]:
    """Yield text, width and attributes; half a wide character, overwritten by another, is a blank."""
    column = 0
    while column < columns:
        char = line[column]
        text, width = char.data, 1
        if text and not text.isascii() and wcwidth(text[0]) == 2:
            whole = column + 1 < columns and not line[column + 1].data
            text, width = (text, 2) if whole else (" ", 1)
        yield text or " ", width, char
        column += width


def _colour(name: str) -> str:
    """Return a colour by its usual name: pyte's yellow is brown, and one of its names is misspelt."""
    return name.replace("brown", "yellow").replace("bfight", "bright")

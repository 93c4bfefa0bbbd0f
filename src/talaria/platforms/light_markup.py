"""Text for networks with a light markup: Markdown in their notation, and commands typed with ``!``."""

import re
from collections.abc import Collection

from msgspec import Struct

from talaria.platforms.files import sanitize_text

_CODE = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]+`)", re.DOTALL)
_FENCED = re.compile(r"\A```[^\n]*\n(.*?)\n?(?:```)?\Z", re.DOTALL)
_BOLD = re.compile(r"(?<![*\\])\*\*(?=\S)([^*\n]+)(?<=\S)\*\*(?!\*)")
_ITALIC = re.compile(r"(?<![*\\\w])\*(?=\S)([^*\n]+)(?<=\S)\*(?![*\w])")
_STRUCK = re.compile(r"~~(?=\S)([^~\n]+)(?<=\S)~~")
_HEADING = re.compile(r"^#{1,6} +(\S.*?) *#*$", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\[\]\n|<>]+)\]\((https?://[^()\s|<>]+)\)")
_MARK = "\0"  # of bold text, until its stars can't be taken for those of italics
_COMMAND = re.compile(r"!(\w[\w-]*)(.*)", re.DOTALL)


class Notation(Struct, frozen=True):
    """The marks around bold, italic and struck text, and the form of a link with its text and address.

    Without ``fences`` blocks of code have no marks.
    """

    bold: str = ""
    italic: str = ""
    struck: str = ""
    link: str = r"\1 (\2)"
    fences: bool = True


PLAIN = Notation(fences=False)
STARS = Notation(bold="*", italic="_", struck="~")


def convert_markdown(text: str, notation: Notation) -> str:
    """Return a Markdown text in another notation: never longer, and with code left alone."""
    parts = _CODE.split(sanitize_text(text))
    for position, part in enumerate(parts):
        if position % 2 == 0:
            parts[position] = _convert(part, notation)
        elif not notation.fences:
            parts[position] = _FENCED.sub(r"\1", part)
    return "".join(parts)


def _convert(text: str, notation: Notation) -> str:
    text = _BOLD.sub(rf"{_MARK}\1{_MARK}", text)
    text = _HEADING.sub(lambda found: f"{_MARK}{found[1].replace(_MARK, '')}{_MARK}", text)
    text = _ITALIC.sub(rf"{notation.italic}\1{notation.italic}", text)
    text = _STRUCK.sub(rf"{notation.struck}\1{notation.struck}", text)
    return _LINK.sub(notation.link, text).replace(_MARK, notation.bold)


def read_command(text: str, commands: Collection[str]) -> str:
    """Return a text with ``/name`` for ``!name`` at its start, if that is a command."""
    typed = _COMMAND.fullmatch(text)
    return f"/{typed[1]}{typed[2]}" if typed and typed[1] in commands else text

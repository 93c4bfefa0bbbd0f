"""Content that networks accept: clean text, Markdown in a light notation, typed commands, files under safe names."""

import mimetypes
import os
import re
from collections.abc import Collection
from itertools import count
from pathlib import Path

from msgspec import Struct

_LINE_ENDS = re.compile(r"\r\n?")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_UNSAFE = re.compile(r"[^\w .()+,=@-]+")
_MAX_NAME_BYTES = 120  # bytes
_OWNER_ONLY_FILE, _OWNER_ONLY_FOLDER = 0o600, 0o700
_CODE = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]+`)", re.DOTALL)
_FENCED = re.compile(r"\A```[^\n]*\n(.*?)\n?(?:```)?\Z", re.DOTALL)
_BOLD = re.compile(r"(?<![*\\])\*\*(?=\S)([^*\n]+)(?<=\S)\*\*(?!\*)")
_ITALIC = re.compile(r"(?<![*\\\w])\*(?=\S)([^*\n]+)(?<=\S)\*(?![*\w])")
_STRUCK = re.compile(r"~~(?=\S)([^~\n]+)(?<=\S)~~")
_HEADING = re.compile(r"^#{1,6} +(\S.*?) *#*$", re.MULTILINE)
_LINK = re.compile(r"!?\[([^\[\]\n|<>]+)\]\((https?://[^()\s|<>]+)\)")
_MARK = "\0"  # of bold text, until its stars can't be taken for those of italics
_COMMAND = re.compile(r"!(\w[\w-]*)(.*)", re.DOTALL)


def sanitize_text(text: str) -> str:
    """Return a text without untransmittable or invisible characters."""
    return _SURROGATES.sub("\ufffd", _CONTROLS.sub("", _LINE_ENDS.sub("\n", text)))


def safe_file_name(name: str, media_type: str = "") -> str:
    """Return a name that is one path component, hides nothing, and has an extension if one is known."""
    base_name = re.split(r"[/\\]", sanitize_text(name))[-1]
    cleaned = Path(_UNSAFE.sub("_", base_name).strip(" .") or "file")
    stem, ending = cleaned.stem, cleaned.suffix[:20] or mimetypes.guess_extension(media_type) or ""
    while len((stem + ending).encode()) > _MAX_NAME_BYTES:
        stem = stem[:-1]
    return (stem + ending).strip(" .") or "file"


def save_file(data: bytes, name: str, folder: Path, media_type: str = "") -> Path:
    """Write a file into a folder and return its path; existing files are not replaced."""
    folder.mkdir(_OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
    safe = Path(safe_file_name(name, media_type))
    for number in count(1):
        path = folder / (safe.name if number == 1 else f"{safe.stem}-{number}{safe.suffix}")
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _OWNER_ONLY_FILE)
        except FileExistsError:
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return path
    raise AssertionError


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


def read_command(text: str, commands: Collection[str]) -> str:
    """Return a text with ``/name`` for ``!name`` at its start, if that is a command."""
    typed = _COMMAND.fullmatch(text)
    return f"/{typed[1]}{typed[2]}" if typed and typed[1] in commands else text


def _convert(text: str, notation: Notation) -> str:
    text = _BOLD.sub(rf"{_MARK}\1{_MARK}", text)
    text = _HEADING.sub(lambda found: f"{_MARK}{found[1].replace(_MARK, '')}{_MARK}", text)
    text = _ITALIC.sub(rf"{notation.italic}\1{notation.italic}", text)
    text = _STRUCK.sub(rf"{notation.struck}\1{notation.struck}", text)
    return _LINK.sub(notation.link, text).replace(_MARK, notation.bold)

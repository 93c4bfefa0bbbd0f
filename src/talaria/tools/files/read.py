"""The read_file tool."""

import asyncio
import codecs
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated

from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.image_types import image_type
from talaria.core.messages import Image
from talaria.tools.files.text_file import failing, is_binary, kind_in_words, require_file

_MOST_TEXT = 40_000
_LONGEST_LINE = 2_000
_SNIFFED = 8192
_LARGEST_IMAGE = 5 * 1024 * 1024
_COUNTED = 50 * 1024 * 1024


class ReadFileArguments(Struct, frozen=True):
    """A file, and which of its lines to read."""

    path: str
    first_line: Annotated[int, Meta(ge=1)] = 1
    limit: Annotated[int, Meta(ge=1, description="number of lines, default 1000")] = 1000
    numbers: Annotated[bool, Meta(description="with line numbers")] = False


class ReadFile:
    """Reads text by lines; images are shown, other files are described."""

    name = "read_file"
    description = "Read a text file or view an image. Long files are truncated; continue with first_line."
    effect = Effect.READS
    arguments = ReadFileArguments

    def proposed_action(self, arguments: ReadFileArguments) -> ProposedAction:
        """Describe what would be read."""
        return ProposedAction("read", arguments.path)

    async def run(self, arguments: ReadFileArguments, call: Call) -> ToolOutput:
        """Return the requested lines, with a note if there are more."""
        path = call.workspace.resolve(arguments.path)
        return await asyncio.to_thread(_read, path, arguments)


def _read(path: Path, wanted: ReadFileArguments) -> ToolOutput:
    with failing(path):
        size = require_file(path).st_size
        with path.open("rb") as file:
            beginning = file.read(_SNIFFED)
            media = image_type(beginning)
            if media:
                return _image(path, size, media)
            if is_binary(beginning):
                return ToolOutput(f"{path} is {kind_in_words(beginning)}, {size:,} bytes. It can't be shown as text.")
            return ToolOutput(_lines(file, beginning, size, wanted))


def _image(path: Path, size: int, media: str) -> ToolOutput:
    if size > _LARGEST_IMAGE:
        raise ToolFailed(f"{path} is an image of {size:,} bytes; the limit is {_LARGEST_IMAGE:,}.")
    return ToolOutput(f"{path} is an image ({media}, {size:,} bytes).", (Image(str(path), media),))


def _lines(file: IO[bytes], beginning: bytes, size: int, wanted: ReadFileArguments) -> str:
    if not beginning:
        return "(the file is empty)"
    file.seek(0)
    shown: list[str] = []
    room, number = _MOST_TEXT, 0
    lines = _decoded(file, beginning)
    for number, line in enumerate(lines, 1):
        if number < wanted.first_line:
            continue
        text = _shown(line, number if wanted.numbers else None)
        room -= len(text) + 1
        if len(shown) == wanted.limit or (room < 0 and shown):
            break
        shown.append(text)
    else:
        return _all_that_is_left(shown, wanted.first_line, number)
    last = wanted.first_line + len(shown) - 1
    of = f" of {number + sum(1 for _ in lines):,}" if size <= _COUNTED else ""
    return "\n".join((*shown, f"[lines {wanted.first_line}-{last}{of}; continue with first_line={last + 1}]"))


def _all_that_is_left(shown: list[str], first: int, total: int) -> str:
    if shown:
        return "\n".join(shown)
    raise ToolFailed(f"The file has {total} lines; there is no line {first}.")


def _decoded(file: IO[bytes], beginning: bytes) -> Iterator[str]:
    """Yield the lines as text, replacing invalid bytes, at any length."""
    if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        yield from (line.rstrip("\r\n") for line in codecs.getreader("utf-16")(file, "replace"))
        return
    for number, line in enumerate(file):
        yield line.decode("utf-8" if number else "utf-8-sig", "replace").rstrip("\r\n")


def _shown(line: str, number: int | None) -> str:
    if len(line) > _LONGEST_LINE:
        line = f"{line[:_LONGEST_LINE]}[… {len(line) - _LONGEST_LINE:,} more characters]"
    return line if number is None else f"{number:>5}\t{line}"

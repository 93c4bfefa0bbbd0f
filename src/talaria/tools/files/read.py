"""The read_file and list_files tools: show a file or the content of a folder."""

import asyncio
import codecs
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.formatting import pluralize
from talaria.core.messages import Image, image_type
from talaria.tools.documents.wire import Extracted, is_document
from talaria.tools.files.text_file import describe_binary, failing, find_encoding, require_file
from talaria.tools.files.walk import Entry, walk

if TYPE_CHECKING:  # loaded with the first document
    from talaria.tools.documents.reader import DocumentReader

_MOST_TEXT = 40_000
_LONGEST_LINE = 2_000
_SNIFFED = 8192
_LARGEST_IMAGE = 5 * 1024 * 1024
_COUNTED = 50 * 1024 * 1024
_UNITS = ("B", "KB", "MB", "GB", "TB")
_STEP = 1024


class ReadFileArguments(Struct, frozen=True):
    """A file, and which of its lines to read."""

    path: str
    first_line: Annotated[int, Meta(ge=1)] = 1
    limit: Annotated[int, Meta(ge=1, description="number of lines, default 1000")] = 1000
    numbers: Annotated[bool, Meta(description="with line numbers")] = False
    parts: Annotated[str, Meta(description="pages, slides or sheets of a document: 3, 2-5, a sheet's name")] = ""


class ReadFile:
    """Reads text by lines, and documents as text; images are shown, other files are described."""

    name = "read_file"
    description = (
        "Read a text file or a document (PDF, office, EPUB, notebook), or view an image."
        " Long files are truncated; continue with first_line."
    )
    effect = Effect.READS
    arguments = ReadFileArguments

    def __init__(self, pictures: Path | None = None) -> None:
        self._pictures = pictures
        self._documents: DocumentReader | None = None

    def proposed_action(self, arguments: ReadFileArguments) -> ProposedAction:
        """Describe what would be read."""
        return ProposedAction("read", arguments.path)

    async def run(self, arguments: ReadFileArguments, call: Call) -> ToolOutput:
        """Return the requested lines, with a note if there are more."""
        path = call.workspace.resolve(arguments.path)
        beginning, size = await asyncio.to_thread(_read_beginning, path)
        if is_document(path, beginning):
            return _format_document(
                await self._open_reader().read(path, arguments.parts, arguments.first_line), arguments
            )
        return await asyncio.to_thread(_read, path, beginning, size, arguments)

    def _open_reader(self) -> "DocumentReader":
        if self._documents is None:
            from talaria.tools.documents.reader import DocumentReader  # noqa: PLC0415 (loaded with the first document)

            self._documents = DocumentReader(self._pictures)
        return self._documents


def _read_beginning(path: Path) -> tuple[bytes, int]:
    """Return the first bytes of a file and its size."""
    with failing(path):
        size = require_file(path).st_size
        with path.open("rb") as file:
            return file.read(_SNIFFED), size


def _read(path: Path, beginning: bytes, size: int, arguments: ReadFileArguments) -> ToolOutput:
    if media := image_type(beginning):
        return _make_image_output(path, size, media)
    encoding = find_encoding(beginning, whole=size <= len(beginning))
    if encoding is None:
        return ToolOutput(f"{path} is {describe_binary(beginning)}, {size:,} bytes. It can't be shown as text.")
    if not beginning:
        return ToolOutput("(the file is empty)")
    with failing(path), path.open("rb") as file:
        return ToolOutput(_select_lines(_decode_lines(file, encoding), arguments, counted=size <= _COUNTED))


def _format_document(found: Extracted, arguments: ReadFileArguments) -> ToolOutput:
    """Return lines of a document's text, under a line that describes it."""
    many = f"{found.total:,} {found.unit}{'s' * (found.total != 1)}" if found.unit else ""
    about = ", ".join(filter(None, (found.kind, found.title and f'"{found.title}"', many)))
    if not found.text and found.first_line > 1:
        raise ToolFailed(f"The document has {pluralize(found.lines, 'line')}; there is no line {found.first_line}.")
    lines = iter(found.text.split("\n"))
    text = _select_lines(
        lines, arguments, counted=not found.next_line, first=found.first_line, has_more=found.next_line > 0
    )
    more = f'\n[more {found.unit}s follow; continue with parts="{found.next_part}-"]' if found.next_part else ""
    pictures = tuple(Image(picture, "image/png") for picture in found.pictures)
    return ToolOutput(f"[{about}]\n{text}{more}", pictures)


def _make_image_output(path: Path, size: int, media: str) -> ToolOutput:
    if size > _LARGEST_IMAGE:
        raise ToolFailed(f"{path} is an image of {size:,} bytes; the limit is {_LARGEST_IMAGE:,}.")
    return ToolOutput(f"{path} is an image ({media}, {size:,} bytes).", (Image(str(path), media),))


def _select_lines(
    lines: Iterator[str], arguments: ReadFileArguments, *, counted: bool, first: int = 1, has_more: bool = False
) -> str:
    """Return the requested ones of lines that are numbered from ``first`` on; ``has_more`` if more follow."""
    shown: list[str] = []
    room, number = _MOST_TEXT, first - 1
    for number, line in enumerate(lines, first):
        if number < arguments.first_line:
            continue
        text = _format_line(line, number if arguments.numbers else None)
        room -= len(text) + 1
        if len(shown) == arguments.limit or (room < 0 and shown):
            break
        shown.append(text)
    else:
        if not has_more:
            return _join_last_lines(shown, arguments.first_line, number)
    last = arguments.first_line + len(shown) - 1
    of = f" of {number + sum(1 for _ in lines):,}" if counted else ""
    return "\n".join((*shown, f"[lines {arguments.first_line}-{last}{of}; continue with first_line={last + 1}]"))


def _join_last_lines(shown: list[str], first: int, total: int) -> str:
    if shown:
        return "\n".join(shown)
    raise ToolFailed(f"The file has {pluralize(total, 'line')}; there is no line {first}.")


def _decode_lines(file: IO[bytes], encoding: str) -> Iterator[str]:
    """Yield the lines as text, replacing invalid bytes, at any length."""
    if encoding != "utf-8":
        yield from (line.rstrip("\r\n") for line in codecs.getreader(encoding)(file, "replace"))
        return
    for number, line in enumerate(file):
        yield line.decode("utf-8" if number else "utf-8-sig", "replace").rstrip("\r\n")


def _format_line(line: str, number: int | None) -> str:
    if len(line) > _LONGEST_LINE:
        line = f"{line[:_LONGEST_LINE]}[… {len(line) - _LONGEST_LINE:,} more characters]"
    return line if number is None else f"{number:>5}\t{line}"


class ListFilesArguments(Struct, frozen=True):
    """A folder, and how much of it to show."""

    path: str = "."
    depth: Annotated[int, Meta(ge=1, le=10)] = 2
    limit: Annotated[int, Meta(ge=1, le=2000)] = 200


class ListFiles:
    """Shows a folder as a tree with sizes."""

    name = "list_files"
    description = "Show a folder as a tree with sizes. Skips what .gitignore excludes."
    effect = Effect.READS
    arguments = ListFilesArguments

    def proposed_action(self, arguments: ListFilesArguments) -> ProposedAction:
        """Describe what would be listed."""
        return ProposedAction("read", arguments.path)

    async def run(self, arguments: ListFilesArguments, call: Call) -> ToolOutput:
        """Return the tree, with a note where it is truncated."""
        folder = call.workspace.resolve(arguments.path)
        return ToolOutput(await asyncio.to_thread(_format_tree, folder, arguments))


def _format_tree(folder: Path, arguments: ListFilesArguments) -> str:
    with failing(folder):
        if not stat.S_ISDIR(folder.stat().st_mode):
            raise ToolFailed(f"{folder} is not a folder. Use read_file.")
        entries = list(islice(walk(folder, depth=arguments.depth), arguments.limit + 1))
    lines = [f"{folder}/", *map(_format_entry, entries[: arguments.limit])]
    if len(entries) > arguments.limit:
        lines.append("[… more entries: raise limit, or list a subfolder]")
    return "\n".join(lines) if entries else f"{folder}/ is empty"


def _format_entry(entry: Entry) -> str:
    name = f"{entry.path.name}/" if entry.is_folder else f"{entry.path.name}  {_format_size(entry.size)}"
    return "  " * entry.depth + name


def _format_size(size: float) -> str:
    for unit in _UNITS[:-1]:
        if size < _STEP:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _STEP
    return f"{size:.1f} {_UNITS[-1]}"

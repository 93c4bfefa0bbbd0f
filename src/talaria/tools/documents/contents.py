"""Contents of documents: parts read one by one, and ZIP archives, read within limits: strangers may send them."""

import lzma
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from xml.etree import ElementTree as ET

from msgspec import Struct

from talaria.core.errors import ToolFailed

_MOST_ENTRIES = 10_000
_MOST_BYTES = 256 * 1024 * 1024  # of all entries that are read, unpacked
_CHUNK = 256 * 1024
_DOCTYPES = tuple("<!DOCTYPE".encode(encoding) for encoding in ("utf-8", "utf-16-le", "utf-16-be"))
_PROLOGUE = 4096  # bytes in which a document type would stand
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, lzma.LZMAError, KeyError, EOFError, NotImplementedError, OSError, ValueError
)  # fmt: skip
Element = ET.Element
_RANGE = re.compile(r"(\d+)(?:\s*-\s*(\d*))?")


class DocumentArchive:
    """An open archive; raises `ToolFailed` for one that is damaged, encrypted or much larger than it looks."""

    def __init__(self, path: Path) -> None:
        try:
            self._zip = zipfile.ZipFile(path)
        except _DAMAGE as error:
            raise ToolFailed("the file is damaged or incomplete") from error
        self.names = frozenset(self._zip.namelist())
        if len(self.names) > _MOST_ENTRIES:
            raise ToolFailed(f"it has {len(self.names):,} parts inside; the limit is {_MOST_ENTRIES:,}")
        self._room = _MOST_BYTES

    def read(self, name: str) -> bytes:
        """Return an entry."""
        try:
            return b"".join(self._read_chunks(name))
        except _DAMAGE as error:
            raise ToolFailed("the file is damaged or incomplete") from error

    def _read_chunks(self, name: str) -> Iterator[bytes]:
        if self._zip.getinfo(name).flag_bits & 1:
            raise ToolFailed("it is encrypted with a password")
        with self._zip.open(name) as entry:
            while chunk := entry.read(_CHUNK):
                self._room -= len(chunk)
                if self._room < 0:
                    raise ToolFailed(f"it expands to more than {_MOST_BYTES // 2**20} MB")
                yield chunk

    def read_xml(self, name: str) -> Element:
        """Return an entry as XML."""
        return parse_xml(self.read(name))

    def iterate_elements(self, name: str, tag: str) -> Iterator[Element]:
        """Yield the elements with this tag one after another, without keeping all of them."""
        parser: Any = ET.XMLPullParser(("end",))
        data = _refuse_doctype(self.read(name))
        try:
            for start in range(0, len(data), _CHUNK):
                parser.feed(data[start : start + _CHUNK])
                for _, element in parser.read_events():
                    if element.tag == tag:
                        yield element
                        element.clear()
        except ET.ParseError as error:
            raise ToolFailed("the file is damaged or incomplete") from error

    def read_relations(self, name: str) -> dict[str, tuple[str, str]]:
        """Return the kind and the target of each relation of a part, by its id."""
        path = PurePosixPath(name)
        relations = str(path.parent / "_rels" / f"{path.name}.rels")
        if relations not in self.names:
            return {}
        found = {}
        for one in self.read_xml(relations):
            target = one.get("Target", "")
            if one.get("TargetMode") != "External":
                target = _resolve(path.parent, target)
            found[one.get("Id", "")] = (one.get("Type", "").rpartition("/")[2], target)
        return found


def parse_xml(data: bytes) -> Element:
    """Return a root element, or raise `ToolFailed`; document types, and so entities, are refused."""
    try:
        return ET.fromstring(_refuse_doctype(data))  # noqa: S314 -- without a document type there are no entities
    except ET.ParseError as error:
        raise ToolFailed("the file is damaged or incomplete") from error


class Section(Struct, frozen=True):
    """A part with its name, if it has one; ``text`` reads it. Office programs don't show ``hidden`` parts."""

    name: str
    text: Callable[[], str]
    hidden: bool = False


class Parts(Struct, frozen=True):
    """A document: its kind in words, the word for its parts, and the parts."""

    kind: str
    unit: str
    sections: Sequence[Section]
    title: str = ""

    def choose(self, selection: str) -> list[int]:
        """Return the indexes of the parts named by numbers, ranges or names; all of them by default."""
        if not selection.strip():
            return list(range(len(self.sections)))
        named = [index for index, one in enumerate(self.sections) if one.name and one.name == selection.strip()]
        return named or list(dict.fromkeys(self._parse_numbers(selection)))

    def _parse_numbers(self, selection: str) -> Iterator[int]:
        for one in selection.split(","):
            found = _RANGE.fullmatch(one.strip())
            if found is None:
                names = ", ".join(section.name for section in self.sections[:20] if section.name)
                raise ToolFailed(f"{one.strip()!r} is no {self.unit or 'part'}{f'; it has {names}' if names else ''}")
            first = int(found[1])
            last = len(self.sections) if found[2] == "" else int(found[2] or first)
            if not 1 <= first <= len(self.sections):
                raise ToolFailed(f"it has {len(self.sections)} {self.unit or 'part'}s; there is no {first}")
            yield from range(first - 1, min(last, len(self.sections)))


def format_table_row(cells: Sequence[str]) -> str:
    """Return cells as a row of a Markdown table."""
    escaped = (" ".join(cell.split()).replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _refuse_doctype(data: bytes) -> bytes:
    if any(mark in data[:_PROLOGUE] or mark in data for mark in _DOCTYPES):
        raise ToolFailed("it contains XML entities, which are refused because they can expand without end")
    return data


def _resolve(folder: PurePosixPath, target: str) -> str:
    parts: list[str] = [] if target.startswith("/") else list(folder.parts)
    for one in PurePosixPath(target.lstrip("/")).parts:
        if one == "..":
            parts = parts[:-1]
        elif one != ".":
            parts.append(one)
    return "/".join(parts)

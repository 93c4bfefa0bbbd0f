"""Program that reads one document within limits of time and memory, and writes its text as JSON.

usage: python -m talaria.tools.documents.extract REQUEST

A damaged or hostile document costs this process, not the agent.
"""

import resource
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from talaria.core.errors import ToolFailed
from talaria.tools.documents.contents import DocumentArchive, Parts
from talaria.tools.documents.wire import PDF, Extracted, ExtractRequest

_MEMORY = 1_500_000_000  # bytes of address space


def main(request: str) -> int:
    """Read a document and print what was found."""
    extract_request = msgspec.json.decode(request, type=ExtractRequest)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (extract_request.seconds, extract_request.seconds + 1))
    try:
        found = extract(extract_request)
    except ToolFailed as error:
        found = Extracted(error=str(error))
    except (MemoryError, RecursionError):
        found = Extracted(error="it needs too much memory")
    sys.stdout.buffer.write(msgspec.json.encode(found))
    return 0


def extract(request: ExtractRequest) -> Extracted:
    """Return the text of the requested parts, as many as there is room for."""
    path = Path(request.path)
    with path.open("rb") as file:
        beginning = file.read(1024)
    if PDF in beginning:
        from talaria.tools.documents.pdf import draw_page, open_pdf, read_pdf  # noqa: PLC0415 (loaded for a PDF)

        document = open_pdf(path)
        return _collect(read_pdf(document), request, lambda number, picture: draw_page(document, number, picture))
    if path.suffix.lower() == ".ipynb":
        from talaria.tools.documents.books import read_notebook  # noqa: PLC0415 (loaded for a notebook)

        return _collect(read_notebook(path), request)
    return _collect(_read_archive(DocumentArchive(path)), request)


def _read_archive(archive: DocumentArchive) -> Parts:
    from talaria.tools.documents.office import read_slides, read_word, read_workbook  # noqa: PLC0415 (not for a PDF)

    for folder, read in (("word/", read_word), ("ppt/", read_slides), ("xl/", read_workbook)):
        if any(name.startswith(folder) for name in archive.names):
            return read(archive)
    if "META-INF/container.xml" in archive.names:
        from talaria.tools.documents.books import read_book  # noqa: PLC0415 (loaded for a book)

        return read_book(archive)
    if "content.xml" in archive.names:
        from talaria.tools.documents.office import read_open_document  # noqa: PLC0415 (only for its formats)

        return read_open_document(archive)
    raise ToolFailed("it is a ZIP archive; unpack it with the terminal")


def _collect(parts: Parts, request: ExtractRequest, draw: Callable[[int, Path], None] | None = None) -> Extracted:
    window = _Window(request.first_line, request.room)
    pictures: list[str] = []
    next_part, has_text = 0, False
    for index in parts.choose(request.parts):
        if window.is_full:
            next_part = index + 1
            break
        text = parts.sections[index].text()
        has_text = has_text or bool(text)
        is_drawn = draw is not None and bool(request.folder) and len(pictures) < request.pictures
        if draw is not None and is_drawn and (request.draws_all or not text):
            picture = Path(request.folder) / f"page-{index + 1}.png"
            draw(index, picture)
            pictures.append(str(picture))
            text = text or f"[no text; picture of the page: {picture}]"
        window.add(f"{_format_heading(parts, index)}{text or '[no text]'}")
    return Extracted(
        kind=parts.kind,
        unit=parts.unit,
        title=parts.title,
        total=len(parts.sections),
        text="\n".join(window.lines),
        has_text=has_text,
        next_part=next_part if not window.next_line else 0,
        first_line=request.first_line,
        next_line=window.next_line,
        lines=window.number,
        pictures=tuple(pictures),
    )


class _Window:
    """Lines of a document from ``first`` on, as many as there is room for.

    ``next_line`` is set if a part has more lines; ``number`` is that of the last line that was read.
    """

    def __init__(self, first: int, room: int) -> None:
        self.lines: list[str] = []
        self.next_line = 0
        self._first = first
        self._room = room
        self.number = 0

    @property
    def is_full(self) -> bool:
        return self._room <= 0

    def add(self, part: str) -> None:
        """Add the text of a part, after an empty line if it isn't the first one."""
        for line in [*([""] if self.number else []), *part.split("\n")]:
            if self.is_full:
                self.next_line = self.number + 1
                return
            self.number += 1
            if self.number >= self._first:
                self.lines.append(line[: self._room])
                self._room -= len(line) + 1


def _format_heading(parts: Parts, index: int) -> str:
    if not parts.unit:
        return ""
    section = parts.sections[index]
    name = f": {section.name}" if section.name else ""
    return f"[{parts.unit} {index + 1}{name}{' (hidden)' if section.hidden else ''}]\n"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Text of OpenDocument files: texts, spreadsheets and presentations."""

from collections.abc import Iterator

from talaria.core.errors import ToolFailed
from talaria.tools.documents.archive import DocumentArchive, Element
from talaria.tools.documents.parts import Parts, Section, table_row

_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_STYLE = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
_DRAW = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
_PRESENTATION = "{urn:oasis:names:tc:opendocument:xmlns:presentation:1.0}"
_MANIFEST = "{urn:oasis:names:tc:opendocument:xmlns:manifest:1.0}"
_MOST_REPEATED = 500  # empty cells are stored as one cell with a count
_SKIPPED = {f"{_TEXT}tracked-changes", f"{_OFFICE}annotation", f"{_TEXT}note-citation", f"{_PRESENTATION}notes"}


def read_open_document(archive: DocumentArchive) -> Parts:
    """Return a text as Markdown, or the sheets or slides of the other kinds."""
    manifest = "META-INF/manifest.xml"
    if manifest in archive.names and archive.xml(manifest).find(f".//{_MANIFEST}encryption-data") is not None:
        raise ToolFailed("it is encrypted with a password")
    root = archive.xml("content.xml")
    body = root.find(f"{_OFFICE}body")
    content = body[0] if body is not None and len(body) else None
    if content is None:
        raise ToolFailed("the file is damaged or incomplete")
    if content.tag == f"{_OFFICE}spreadsheet":
        hidden = _hidden_styles(root, "table", f"{_TABLE}display", "false")
        return Parts("spreadsheet", "sheet", [_table(one, hidden) for one in content.findall(f"{_TABLE}table")])
    if content.tag == f"{_OFFICE}presentation":
        hidden = _hidden_styles(root, "drawing-page", f"{_PRESENTATION}visibility", "hidden")
        return Parts("presentation", "slide", [_page(one, hidden) for one in content.findall(f"{_DRAW}page")])
    return Parts("text document", "", [Section("", lambda: "\n".join(_flow(content)))])


def _hidden_styles(root: Element, family: str, attribute: str, value: str) -> set[str]:
    """Return the names of the styles of hidden sheets or slides."""
    styles = root.iterfind(f"{_OFFICE}automatic-styles/{_STYLE}style[@{_STYLE}family='{family}']")
    return {
        style.get(f"{_STYLE}name", "")
        for style in styles
        if any(properties.get(attribute) == value for properties in style)
    }


def _table(table: Element, hidden: set[str]) -> Section:
    is_hidden = table.get(f"{_TABLE}style-name", "") in hidden
    return Section(table.get(f"{_TABLE}name", ""), lambda: "\n".join(_sheet(table)), is_hidden)


def _page(page: Element, hidden: set[str]) -> Section:
    is_hidden = page.get(f"{_DRAW}style-name", "") in hidden
    return Section("", lambda: "\n".join(_slide(page)), is_hidden)


def _flow(parent: Element, indent: int = 0) -> Iterator[str]:
    """Yield headings, paragraphs, lists and tables as lines."""
    for one in parent:
        if one.tag == f"{_TEXT}h":
            yield f"{'#' * int(one.get(f'{_TEXT}outline-level', '1'))} {_text(one)}"
        elif one.tag == f"{_TEXT}p":
            if text := _text(one):
                yield text
        elif one.tag == f"{_TEXT}list-item":
            lines = list(_flow(one, indent + 1))
            yield from (f"{'  ' * indent}- {line}" if not line.lstrip().startswith("- ") else line for line in lines)
        elif one.tag == f"{_TABLE}table":
            yield from (table_row(cells) for cells in _rows(one))
        elif one.tag not in _SKIPPED:
            yield from _flow(one, indent)


def _text(parent: Element) -> str:
    return "".join(_pieces(parent)).strip()


def _pieces(parent: Element) -> Iterator[str]:
    yield parent.text or ""
    for one in parent:
        if one.tag == f"{_TEXT}s":
            yield " " * min(int(one.get(f"{_TEXT}c", "1")), _MOST_REPEATED)
        elif one.tag in {f"{_TEXT}tab", f"{_TEXT}line-break"}:
            yield "\t" if one.tag == f"{_TEXT}tab" else "\n"
        elif one.tag == f"{_TEXT}note":
            yield f" [{' '.join(_flow(one))}]"
        elif one.tag not in _SKIPPED:
            yield from _pieces(one)
        yield one.tail or ""


def _sheet(table: Element) -> Iterator[str]:
    for number, cells in enumerate(_rows(table), 1):
        if any(cells):
            yield f"{number}\t{table_row(cells)}"


def _rows(table: Element) -> Iterator[list[str]]:
    for row in table.iter(f"{_TABLE}table-row"):
        cells: list[str] = []
        for cell in row:
            if cell.tag in {f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"}:
                times = min(int(cell.get(f"{_TABLE}number-columns-repeated", "1")), _MOST_REPEATED)
                cells += [" ".join(_flow(cell))] * times
        while cells and not cells[-1]:
            cells.pop()
        repeated = int(row.get(f"{_TABLE}number-rows-repeated", "1"))
        yield from [cells] * (min(repeated, _MOST_REPEATED) if cells else 1)


def _slide(page: Element) -> Iterator[str]:
    yield from _flow(page)
    notes = page.find(f"{_PRESENTATION}notes")
    said = list(_flow(notes)) if notes is not None else []
    if said:
        yield from ("Notes:", *said)

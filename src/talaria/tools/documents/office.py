"""Text of office documents: Word, Excel and PowerPoint, and those of the OpenDocument format."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial

from talaria.core.errors import ToolFailed
from talaria.tools.documents.contents import DocumentArchive, Element, Parts, Section, format_table_row

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_S = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_HEADING = re.compile(r"heading (\d)|title", re.IGNORECASE)
_CELL = re.compile(r"([A-Z]{1,3})(\d+)")
_DATE_CODES = re.compile(r'"[^"]{0,200}"|\[[^\]]{0,200}\]|\\.')
_DATE_FORMATS = {*range(14, 23), *range(45, 48)}
_MOST_COLUMNS = 500
_FIRST_DAY = datetime(1899, 12, 30)  # noqa: DTZ001 -- serial dates have no time zone
_FIRST_DAY_1904 = datetime(1904, 1, 1)  # noqa: DTZ001 -- serial dates have no time zone
_DAMAGED = "the file is damaged or incomplete"
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_STYLE = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
_DRAW = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
_PRESENTATION = "{urn:oasis:names:tc:opendocument:xmlns:presentation:1.0}"
_MANIFEST = "{urn:oasis:names:tc:opendocument:xmlns:manifest:1.0}"
_MOST_REPEATED = 500  # empty cells are stored as one cell with a count
_SKIPPED = {f"{_TEXT}tracked-changes", f"{_OFFICE}annotation", f"{_TEXT}note-citation", f"{_PRESENTATION}notes"}


def read_word(archive: DocumentArchive) -> Parts:
    """Return a Word document as Markdown: headings, lists, tables, links and notes."""
    main = _find_main_part(archive, "word/document.xml")
    root, relations = archive.read_xml(main), archive.read_relations(main)
    styles = _find_heading_styles(archive, relations)
    body = root.find(f"{_W}body")
    lines = list(_render_blocks(body, styles, relations)) if body is not None else []
    lines = [*_read_margins(archive, relations, "header"), *lines, *_read_margins(archive, relations, "footer")]
    for kind in ("footnotes", "endnotes"):
        target = next((target for name, target in relations.values() if name == kind), "")
        if target in archive.names:
            for note in archive.read_xml(target):
                text = " ".join(_render_blocks(note, styles, {})).strip()
                if text and note.get(f"{_W}type") is None:
                    lines.append(f"[^{note.get(f'{_W}id')}]: {text}")
    return Parts("Word document", "", [Section("", partial("\n".join, lines))])


def read_slides(archive: DocumentArchive) -> Parts:
    """Return a presentation: the text, tables and notes of each slide, in the order of the show."""
    main = _find_main_part(archive, "ppt/presentation.xml")
    relations = archive.read_relations(main)
    order = [relations.get(one.get(f"{_R}id", ""), ("", ""))[1] for one in archive.read_xml(main).iter(f"{_P}sldId")]
    slides = [name for name in order if name in archive.names]
    return Parts("presentation", "slide", [Section("", partial(_read_slide, archive, name)) for name in slides])


def read_workbook(archive: DocumentArchive) -> Parts:
    """Return a workbook: the rows of each sheet, with the values that formulas had when it was saved."""
    main = _find_main_part(archive, "xl/workbook.xml")
    relations, root = archive.read_relations(main), archive.read_xml(main)
    properties = root.find(f"{_S}workbookPr")
    first_day = (
        _FIRST_DAY_1904 if properties is not None and properties.get("date1904") in {"1", "true"} else _FIRST_DAY
    )
    of_kind = dict(relations.values())
    texts = _read_shared_texts(archive, of_kind.get("sharedStrings", ""))
    dates = _find_date_styles(archive, of_kind.get("styles", ""))
    sections = []
    for sheet in root.iter(f"{_S}sheet"):
        target = relations.get(sheet.get(f"{_R}id", ""), ("", ""))[1]
        if target in archive.names:
            rows = _Rows(archive, target, texts, dates, first_day)
            sections.append(
                Section(sheet.get("name", ""), rows.format_text, sheet.get("state", "visible") != "visible")
            )
    return Parts("workbook", "sheet", sections)


class _Rows:
    """The rows of a sheet as lines of text."""

    def __init__(
        self, archive: DocumentArchive, name: str, texts: Sequence[str], dates: set[int], first_day: datetime
    ) -> None:
        self._archive = archive
        self._name = name
        self._texts = texts
        self._dates = dates
        self._first_day = first_day

    def format_text(self) -> str:
        lines = []
        for row in self._archive.iterate_elements(self._name, f"{_S}row"):
            values: list[str] = []
            for cell in row.iter(f"{_S}c"):
                column = _parse_column(cell.get("r", "")) or len(values) + 1
                if column <= _MOST_COLUMNS and (text := self._format_value(cell)):
                    values += [""] * (column - len(values) - 1)
                    values.append(text)
            if any(values):
                lines.append(f"{row.get('r', '')}\t{format_table_row(values)}".strip())
        return "\n".join(lines)

    def _format_value(self, cell: Element) -> str:
        kind = cell.get("t", "n")
        if kind == "inlineStr":
            return _extract_cell_text(cell)
        found = cell.find(f"{_S}v")
        text = found.text or "" if found is not None else ""
        if not text and (formula := cell.find(f"{_S}f")) is not None and formula.text:
            return f"={formula.text}"
        if kind == "s":
            return self._texts[int(text)] if text.isdecimal() and int(text) < len(self._texts) else ""
        if kind == "b":
            return "TRUE" if text == "1" else "FALSE"
        style = cell.get("s", "0")
        if kind == "n" and text and style.isdecimal() and int(style) in self._dates:
            return self._format_date(text)
        return text

    def _format_date(self, text: str) -> str:
        try:
            at = self._first_day + timedelta(days=float(text))
        except (ValueError, OverflowError):
            return text
        at = (at + timedelta(microseconds=500_000)).replace(microsecond=0)
        return f"{at:%Y-%m-%d}" if not at.hour + at.minute + at.second else f"{at:%Y-%m-%d %H:%M:%S}"


def read_open_document(archive: DocumentArchive) -> Parts:
    """Return a text as Markdown, or the sheets or slides of the other kinds."""
    manifest = "META-INF/manifest.xml"
    if manifest in archive.names and archive.read_xml(manifest).find(f".//{_MANIFEST}encryption-data") is not None:
        raise ToolFailed("it is encrypted with a password")
    root = archive.read_xml("content.xml")
    body = root.find(f"{_OFFICE}body")
    content = body[0] if body is not None and len(body) else None
    if content is None:
        raise ToolFailed("the file is damaged or incomplete")
    if content.tag == f"{_OFFICE}spreadsheet":
        hidden = _find_hidden_styles(root, "table", f"{_TABLE}display", "false")
        return Parts(
            "spreadsheet", "sheet", [_make_sheet_section(one, hidden) for one in content.findall(f"{_TABLE}table")]
        )
    if content.tag == f"{_OFFICE}presentation":
        hidden = _find_hidden_styles(root, "drawing-page", f"{_PRESENTATION}visibility", "hidden")
        return Parts(
            "presentation", "slide", [_make_slide_section(one, hidden) for one in content.findall(f"{_DRAW}page")]
        )
    return Parts("text document", "", [Section("", lambda: "\n".join(_render_flow(content)))])


def _read_margins(archive: DocumentArchive, relations: dict[str, tuple[str, str]], kind: str) -> list[str]:
    """Return the text of headers or footers, each once: letterheads are there."""
    names = [target for name, target in relations.values() if name == kind and target in archive.names]
    texts = (" ".join(_render_blocks(archive.read_xml(name), {}, {})).strip() for name in sorted(names))
    return [f"[{kind}: {text}]" for text in dict.fromkeys(texts) if text]


def _find_main_part(archive: DocumentArchive, usual: str) -> str:
    """Return the name of the part that the package says is the document."""
    named = (target for kind, target in archive.read_relations("").values() if kind == "officeDocument")
    name = next(named, usual)
    if name not in archive.names:
        raise ToolFailed(_DAMAGED)
    return name


def _find_heading_styles(archive: DocumentArchive, relations: dict[str, tuple[str, str]]) -> dict[str, int]:
    """Return the level of each style that is a heading."""
    target = next((target for name, target in relations.values() if name == "styles"), "")
    found = {}
    if target in archive.names:
        for style in archive.read_xml(target).iter(f"{_W}style"):
            name = style.find(f"{_W}name")
            heading = _HEADING.fullmatch(name.get(f"{_W}val", "")) if name is not None else None
            if heading:
                found[style.get(f"{_W}styleId", "")] = int(heading[1] or 1)
    return found


def _render_blocks(parent: Element, styles: dict[str, int], relations: dict[str, tuple[str, str]]) -> Iterator[str]:
    for block in parent:
        if block.tag == f"{_W}p":
            text = _render_paragraph(block, relations)
            style = block.find(f"{_W}pPr/{_W}pStyle")
            level = styles.get(style.get(f"{_W}val", ""), 0) if style is not None else 0
            listed = block.find(f"{_W}pPr/{_W}numPr") is not None or (
                style is not None and style.get(f"{_W}val", "").startswith("List")
            )
            if text:
                yield f"{'#' * level} {text}" if level else f"- {text}" if listed else text
        elif block.tag == f"{_W}tbl":
            for row in block.iter(f"{_W}tr"):
                yield format_table_row(
                    [" ".join(_render_blocks(cell, styles, relations)) for cell in row.iter(f"{_W}tc")]
                )
        elif block.tag in {f"{_W}sdt", f"{_W}sdtContent", f"{_W}customXml", f"{_W}ins"}:
            yield from _render_blocks(block, styles, relations)


def _render_paragraph(block: Element, relations: dict[str, tuple[str, str]]) -> str:
    return "".join(_render_runs(block, relations)).strip()


def _render_runs(parent: Element, relations: dict[str, tuple[str, str]]) -> Iterator[str]:
    for one in parent:
        if one.tag == f"{_W}t":
            yield one.text or ""
        elif one.tag in {f"{_W}tab", f"{_W}br", f"{_W}cr"}:
            yield "\t" if one.tag == f"{_W}tab" else "\n"
        elif one.tag in {f"{_W}footnoteReference", f"{_W}endnoteReference"}:
            yield f"[^{one.get(f'{_W}id')}]"
        elif one.tag == f"{_W}hyperlink":
            text, target = "".join(_render_runs(one, relations)), relations.get(one.get(f"{_R}id", ""), ("", ""))[1]
            yield f"[{text}]({target})" if "://" in target else text
        elif one.tag not in {f"{_W}del", f"{_W}pPr", f"{_W}rPr", f"{_W}instrText", _FALLBACK}:
            yield from _render_runs(one, relations)


def _read_slide(archive: DocumentArchive, name: str) -> str:
    root = archive.read_xml(name)
    lines = [*(("(hidden)",) if root.get("show") in {"0", "false"} else ()), *_render_shapes(root)]
    notes = next((target for kind, target in archive.read_relations(name).values() if kind == "notesSlide"), "")
    if notes in archive.names:
        note_lines = [
            text
            for shape in archive.read_xml(notes).iter(f"{_P}sp")
            if (kind := shape.find(f".//{_P}ph")) is not None and kind.get("type") == "body"
            for text in _render_shapes(shape)
        ]
        if note_lines:
            lines += ["Notes:", *note_lines]
    return "\n".join(lines)


def _render_shapes(parent: Element) -> Iterator[str]:
    for one in parent:
        if one.tag == f"{_A}tbl":
            for row in one.iter(f"{_A}tr"):
                yield format_table_row([" ".join(_render_shapes(cell)) for cell in row.iter(f"{_A}tc")])
        elif one.tag == f"{_A}p":
            pieces = (
                "\n" if piece.tag == f"{_A}br" else piece.text or ""
                for piece in one.iter()
                if piece.tag in {f"{_A}t", f"{_A}br"}
            )
            if text := "".join(pieces).strip():
                yield text
        elif one.tag != _FALLBACK:
            yield from _render_shapes(one)


def _read_shared_texts(archive: DocumentArchive, name: str) -> list[str]:
    if name not in archive.names:
        return []
    return [_extract_cell_text(one) for one in archive.iterate_elements(name, f"{_S}si")]


def _extract_cell_text(element: Element) -> str:
    """Return the text of a rich text, without its phonetic hints."""
    hints = {id(text) for hint in element.iter(f"{_S}rPh") for text in hint.iter(f"{_S}t")}
    return "".join(text.text or "" for text in element.iter(f"{_S}t") if id(text) not in hints)


def _find_date_styles(archive: DocumentArchive, name: str) -> set[int]:
    """Return the numbers of the cell styles that show dates."""
    if name not in archive.names:
        return set()
    root = archive.read_xml(name)
    own = {
        int(one.get("numFmtId", 0))
        for one in root.iter(f"{_S}numFmt")
        if set(_DATE_CODES.sub("", one.get("formatCode", "")).lower()) & set("ymdhs")
    }
    formats = root.find(f"{_S}cellXfs")
    found = enumerate(formats if formats is not None else ())
    return {number for number, one in found if int(one.get("numFmtId", 0)) in _DATE_FORMATS | own}


def _parse_column(reference: str) -> int:
    found = _CELL.fullmatch(reference)
    number = 0
    for letter in found[1] if found else "":
        number = number * 26 + ord(letter) - 64
    return number


def _find_hidden_styles(root: Element, family: str, attribute: str, value: str) -> set[str]:
    """Return the names of the styles of hidden sheets or slides."""
    styles = root.iterfind(f"{_OFFICE}automatic-styles/{_STYLE}style[@{_STYLE}family='{family}']")
    return {
        style.get(f"{_STYLE}name", "")
        for style in styles
        if any(properties.get(attribute) == value for properties in style)
    }


def _make_sheet_section(table: Element, hidden: set[str]) -> Section:
    is_hidden = table.get(f"{_TABLE}style-name", "") in hidden
    return Section(table.get(f"{_TABLE}name", ""), lambda: "\n".join(_render_sheet(table)), is_hidden)


def _make_slide_section(page: Element, hidden: set[str]) -> Section:
    is_hidden = page.get(f"{_DRAW}style-name", "") in hidden
    return Section("", lambda: "\n".join(_render_slide(page)), is_hidden)


def _render_flow(parent: Element, indent: int = 0) -> Iterator[str]:
    """Yield headings, paragraphs, lists and tables as lines."""
    for one in parent:
        if one.tag == f"{_TEXT}h":
            yield f"{'#' * int(one.get(f'{_TEXT}outline-level', '1'))} {_extract_text(one)}"
        elif one.tag == f"{_TEXT}p":
            if text := _extract_text(one):
                yield text
        elif one.tag == f"{_TEXT}list-item":
            lines = list(_render_flow(one, indent + 1))
            yield from (f"{'  ' * indent}- {line}" if not line.lstrip().startswith("- ") else line for line in lines)
        elif one.tag == f"{_TABLE}table":
            yield from (format_table_row(cells) for cells in _read_rows(one))
        elif one.tag not in _SKIPPED:
            yield from _render_flow(one, indent)


def _extract_text(parent: Element) -> str:
    return "".join(_extract_pieces(parent)).strip()


def _extract_pieces(parent: Element) -> Iterator[str]:
    yield parent.text or ""
    for one in parent:
        if one.tag == f"{_TEXT}s":
            yield " " * min(int(one.get(f"{_TEXT}c", "1")), _MOST_REPEATED)
        elif one.tag in {f"{_TEXT}tab", f"{_TEXT}line-break"}:
            yield "\t" if one.tag == f"{_TEXT}tab" else "\n"
        elif one.tag == f"{_TEXT}note":
            yield f" [{' '.join(_render_flow(one))}]"
        elif one.tag not in _SKIPPED:
            yield from _extract_pieces(one)
        yield one.tail or ""


def _render_sheet(table: Element) -> Iterator[str]:
    for number, cells in enumerate(_read_rows(table), 1):
        if any(cells):
            yield f"{number}\t{format_table_row(cells)}"


def _read_rows(table: Element) -> Iterator[list[str]]:
    for row in table.iter(f"{_TABLE}table-row"):
        cells: list[str] = []
        for cell in row:
            if cell.tag in {f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"}:
                times = min(int(cell.get(f"{_TABLE}number-columns-repeated", "1")), _MOST_REPEATED)
                cells += [" ".join(_render_flow(cell))] * times
        while cells and not cells[-1]:
            cells.pop()
        repeated = int(row.get(f"{_TABLE}number-rows-repeated", "1"))
        yield from [cells] * (min(repeated, _MOST_REPEATED) if cells else 1)


def _render_slide(page: Element) -> Iterator[str]:
    yield from _render_flow(page)
    notes = page.find(f"{_PRESENTATION}notes")
    note_lines = list(_render_flow(notes)) if notes is not None else []
    if note_lines:
        yield from ("Notes:", *note_lines)

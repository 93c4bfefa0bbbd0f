"""Text of EPUB books and Jupyter notebooks."""

import posixpath
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from talaria.core.errors import ToolFailed
from talaria.tools.documents.contents import DocumentArchive, Parts, Section
from talaria.tools.web.html_text import extract_page_text

_CONTAINER = "META-INF/container.xml"
_DAMAGED = "the file is damaged or incomplete"
_LONGEST_OUTPUT = 5_000
_LARGEST_NOTEBOOK = 64 * 1024 * 1024


def read_book(archive: DocumentArchive) -> Parts:
    """Return a book: its chapters in reading order, as Markdown."""
    if "META-INF/encryption.xml" in archive.names and b"EncryptedData" in archive.read("META-INF/encryption.xml"):
        raise ToolFailed("it is protected against copying")
    if _CONTAINER not in archive.names:
        raise ToolFailed(_DAMAGED)
    rootfile = archive.read_xml(_CONTAINER).find(".//{*}rootfile")
    package = rootfile.get("full-path", "") if rootfile is not None else ""
    if package not in archive.names:
        raise ToolFailed(_DAMAGED)
    root = archive.read_xml(package)
    title = root.find(".//{http://purl.org/dc/elements/1.1/}title")
    items = {one.get("id", ""): unquote(one.get("href", "")) for one in root.iterfind(".//{*}manifest/{*}item")}
    order = [items.get(one.get("idref", ""), "") for one in root.iterfind(".//{*}spine/{*}itemref")]
    folder = posixpath.dirname(package)
    names = [posixpath.normpath(posixpath.join(folder, one)) for one in order if one]
    sections = [Section("", partial(_read_chapter, archive, name)) for name in names if name in archive.names]
    return Parts("book", "chapter", sections, (title.text or "").strip() if title is not None else "")


def _read_chapter(archive: DocumentArchive, name: str) -> str:
    return extract_page_text(archive.read(name).decode("utf-8", "replace"), "")


def read_notebook(path: Path) -> Parts:
    """Return a notebook: its cells with the text of their results."""
    if path.stat().st_size > _LARGEST_NOTEBOOK:
        raise ToolFailed(f"it is larger than {_LARGEST_NOTEBOOK // 2**20} MB")
    try:
        notebook = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
        cells = notebook["cells"]
        language = notebook.get("metadata", {}).get("language_info", {}).get("name", "python")
        texts = [_format_cell(one, language) for one in cells]
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise ToolFailed(_DAMAGED) from error
    return Parts("notebook", "cell", [Section("", partial(str, text)) for text in texts])


def _format_cell(cell: dict[str, Any], language: str) -> str:
    source = _join_text(cell.get("source", ""))
    if cell.get("cell_type") != "code":
        return source
    results = [text for output in cell.get("outputs", ()) if (text := _format_output(output))]
    return "\n".join((f"```{language}\n{source}\n```", *(f"Result:\n{text}" for text in results)))


def _format_output(output: dict[str, Any]) -> str:
    if "ename" in output:
        return f"{output.get('ename')}: {output.get('evalue')}"
    data = output.get("data", {})
    text = _join_text(output.get("text", data.get("text/plain", "")))
    pictures = [kind for kind in data if kind.startswith("image/")]
    if pictures:
        text = f"{text}\n[{pictures[0]}]".strip()
    return text if len(text) <= _LONGEST_OUTPUT else f"{text[:_LONGEST_OUTPUT]}\n[… {len(text):,} characters]"


def _join_text(text: str | list[str]) -> str:
    return text if isinstance(text, str) else "".join(text)

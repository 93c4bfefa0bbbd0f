"""Text and pictures of PDF pages."""

import struct
import zlib
from functools import partial
from pathlib import Path

from pypdfium2 import PdfBitmap, PdfDocument, PdfiumError

from talaria.core.errors import ToolFailed
from talaria.tools.documents.contents import Parts, Section

_PASSWORD = 4  # PDFium's error for a missing password
_WIDEST = 1_400  # pixels of a page's picture; more costs a model tokens and shows nothing new


def open_pdf(path: Path) -> PdfDocument:
    """Open a file, or raise `ToolFailed`."""
    try:
        return PdfDocument(path)
    except PdfiumError as error:
        encrypted = getattr(error, "err_code", None) == _PASSWORD
        raise ToolFailed(
            "it is encrypted with a password" if encrypted else "the file is damaged or incomplete"
        ) from error


def read_pdf(document: PdfDocument) -> Parts:
    """Return the text of each page; a page without text is a picture."""
    title = str(document.get_metadata_dict().get("Title", "")).strip()
    sections = [Section("", partial(_read_page, document, number)) for number in range(len(document))]
    return Parts("PDF", "page", sections, title)


def draw_page(document: PdfDocument, number: int, file: Path) -> None:
    """Write a picture of a page."""
    page = document[number]
    scale = min(2.0, _WIDEST / max(page.get_width(), page.get_height(), 1.0))
    file.write_bytes(_encode_png(page.render(scale=scale, rev_byteorder=True)))


def _read_page(document: PdfDocument, number: int) -> str:
    try:
        text = document[number].get_textpage().get_text_bounded()
    except PdfiumError as error:
        return f"[this page can't be read: {error}]"
    return "\n".join(line.rstrip() for line in text.replace("\r\n", "\n").splitlines()).strip()


def _encode_png(bitmap: PdfBitmap) -> bytes:
    """Return a bitmap as a PNG file."""
    if bitmap.n_channels not in {1, 3, 4}:
        raise ToolFailed("its pages have colours that can't be drawn")
    color = {1: 0, 3: 2, 4: 6}[bitmap.n_channels]
    raw, length = bytes(bitmap.buffer), bitmap.width * bitmap.n_channels
    rows = b"".join(
        b"\0" + raw[start : start + length] for start in range(0, bitmap.stride * bitmap.height, bitmap.stride)
    )
    header = struct.pack(">IIBBBBB", bitmap.width, bitmap.height, 8, color, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows, 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )

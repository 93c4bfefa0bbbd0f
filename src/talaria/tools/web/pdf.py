"""Extract the text of a PDF, page by page. Imported when a PDF was fetched."""

import io

from pypdf import PdfReader
from pypdf.errors import PyPdfError

from talaria.core.errors import ToolFailed

_MOST_PAGES = 200


def pdf_text(body: bytes) -> str:
    """Return the text of the first pages under a title, or raise `ToolFailed`."""
    try:
        reader = PdfReader(io.BytesIO(body))
        title = (reader.metadata.title if reader.metadata else "") or ""
        pages = [reader.pages[number].extract_text().strip() for number in range(min(len(reader.pages), _MOST_PAGES))]
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ToolFailed(f"the PDF can't be read: {error}") from error
    if not any(pages):
        raise ToolFailed("the PDF contains no text; its pages are images")
    shown = [f"[page {number}]\n{text}" for number, text in enumerate(pages, 1) if text]
    return "\n\n".join(filter(None, [f"# {title.strip()}" if title.strip() else "", *shown]))

"""Formats of documents, and messages between the agent and the process that reads one."""

from pathlib import Path

from msgspec import Struct

PDF = b"%PDF-"
ZIP = b"PK\x03\x04"
OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_SUFFIXES = frozenset(
    (".docx", ".docm", ".xlsx", ".xlsm", ".pptx", ".pptm", ".ppsx", ".odt", ".ods", ".odp", ".ott", ".epub")
)


def is_document(path: Path, beginning: bytes) -> bool:
    """Return whether a file is a document that has to be converted to text."""
    suffix = path.suffix.lower()
    if PDF in beginning[:1024] or suffix == ".ipynb" or beginning.startswith(OLD_OFFICE):
        return True
    return beginning.startswith(ZIP) and suffix in _SUFFIXES


class ExtractRequest(Struct, frozen=True):
    """A document, the parts to read, and the limits; pictures of pages are written to ``folder`` if there is one.

    Pages with text are drawn only if ``draws_all``. Lines of the text before ``first_line`` are left out.
    """

    path: str
    parts: str = ""
    folder: str = ""
    seconds: int = 30
    room: int = 400_000  # characters
    pictures: int = 8
    draws_all: bool = False
    first_line: int = 1


class Extracted(Struct, frozen=True):
    """Text of a document, or a reason in ``error``.

    ``next_part`` is the first part without room in it, ``next_line`` the line where the last part continues, if there
    is one. ``first_line`` is the number of the first line of ``text``, ``lines`` how many were read.
    """

    kind: str = ""
    unit: str = ""
    title: str = ""
    total: int = 0
    text: str = ""
    has_text: bool = False
    next_part: int = 0
    first_line: int = 1
    next_line: int = 0
    lines: int = 0
    pictures: tuple[str, ...] = ()
    error: str = ""

    def has(self, line: int) -> bool:
        """Return whether the text contains a line, or would if the document had it."""
        return self.first_line <= line and (not self.next_line or line < self.next_line)

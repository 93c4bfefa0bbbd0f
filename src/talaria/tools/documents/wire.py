"""Messages between the agent and the process that reads a document."""

from msgspec import Struct


class ExtractRequest(Struct, frozen=True):
    """A document, the parts to read, and the limits; pictures of pages are written to ``folder`` if there is one."""

    path: str
    parts: str = ""
    folder: str = ""
    seconds: int = 30
    room: int = 400_000  # characters
    pictures: int = 8


class Extracted(Struct, frozen=True):
    """What was read, or a reason in ``error``; ``next_part`` is the first part that there was no room for."""

    kind: str = ""
    unit: str = ""
    title: str = ""
    total: int = 0
    text: str = ""
    has_text: bool = False
    next_part: int = 0
    pictures: tuple[str, ...] = ()
    error: str = ""

"""Store the beginning and the end of an output in memory, and all of a long one in a file."""

import codecs
from collections.abc import Callable
from pathlib import Path
from typing import IO

from talaria.tools.output import OUTPUT_LIMIT, join_cut, readable

FILE_LIMIT = 64 * 1024 * 1024


class Capture:
    """The output of one command; ``new_file`` returns a path for the whole of it when needed."""

    def __init__(self, new_file: Callable[[], Path], *, limit: int = OUTPUT_LIMIT) -> None:
        self._new_file = new_file
        self._limit = limit
        self._kept = bytearray()
        self._tail = bytearray()
        self._size = 0
        self._file: IO[bytes] | None = None

    def add(self, piece: bytes) -> None:
        """Add the next piece of the output."""
        self._size += len(piece)
        if self._file is None and self._size <= self._limit:
            self._kept += piece
            return
        if self._file is None:
            piece = self._overflow(piece)
        self._tail = (self._tail + piece)[-self._limit // 2 :]
        self._save(piece)

    def close(self) -> None:
        """Finish the file, if there is one."""
        if self._file is not None:
            self._file.close()

    def text(self) -> str:
        """Return the output for the model: cut in the middle if it is long."""
        if self._file is None:
            return readable(bytes(self._kept))
        head, tail = readable(bytes(self._kept)), readable(_from_character(self._tail))
        missing = self._size - len(self._kept) - len(self._tail)
        whole = "the whole output" if self._size <= FILE_LIMIT else f"its first {FILE_LIMIT:,} bytes"
        return join_cut(head, tail, missing=missing, rest=f"{whole} is in {self._file.name}; use read_file")

    def _overflow(self, piece: bytes) -> bytes:
        """Open the file, keep the head, and return what follows it."""
        whole, half = bytes(self._kept) + piece, self._limit // 2
        self._kept = bytearray(whole[:half])
        self._file = self._new_file().open("xb")
        self._file.write(self._kept)
        return whole[half:]

    def _save(self, piece: bytes) -> None:
        assert self._file is not None
        room = FILE_LIMIT - self._file.tell()
        if room > 0:
            self._file.write(piece[:room])


class Pieces:
    """Converts raw output to text for a watching person, in whole characters and at a readable pace."""

    def __init__(self, show: Callable[[str], None]) -> None:
        self._show = show
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._waiting = ""

    def add(self, piece: bytes) -> None:
        """Add the next piece of the output."""
        self._waiting += self._decoder.decode(piece)
        if len(self._waiting) > 2 * OUTPUT_LIMIT:
            self._waiting = "…" + self._waiting[-OUTPUT_LIMIT:]

    def flush(self, *, last: bool = False) -> None:
        """Show new output: whole lines where there are any, everything at the end."""
        cut = len(self._waiting) if last else self._waiting.rfind("\n") + 1 or len(self._waiting)
        text, self._waiting = self._waiting[:cut], self._waiting[cut:]
        if text:
            self._show(readable(text.encode()))


def _from_character(raw: bytearray) -> bytes:
    """Return the bytes from the first whole character on: a cut may have split one."""
    start = 0
    while start < min(3, len(raw)) and raw[start] & 0xC0 == 0x80:
        start += 1
    return bytes(raw[start:])

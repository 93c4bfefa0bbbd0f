"""Parser for server-sent events."""

from talaria.core.errors import ReplyTooLong
from talaria.providers.http.reply_limits import MAX_EVENT


class EventParser:
    """Collects bytes and returns the data of each complete event.

    Lines end in LF, CRLF or CR; several data lines of one event are joined by LF; comments, event names, ids and an
    unterminated event are dropped. Raises `ReplyTooLong` for an event that is too large.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._rest_size = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._first = True
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that ``chunk`` completes, oldest first."""
        events: list[bytes] = []
        for line in self._lines(chunk):
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
                self._data_size += len(line)
            elif not line and self._data:
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data, self._data_size = [], 0
            elif line == b"data":
                self._data.append(b"")
        if self._data_size + self._rest_size > MAX_EVENT:
            raise ReplyTooLong(f"a stream event is larger than {MAX_EVENT // 1024**2} MB")
        return events

    def _lines(self, chunk: bytes) -> list[bytes]:
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return []
        lines = chunk.splitlines()
        self._after_cr = chunk.endswith(b"\r")
        rest = b"" if chunk.endswith((b"\n", b"\r")) else lines.pop()
        if lines and self._rest:
            lines[0] = b"".join([*self._rest, lines[0]])
            self._rest, self._rest_size = [], 0
        if rest:
            self._rest.append(rest)
            self._rest_size += len(rest)
        if self._first and lines:
            self._first = False
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        return lines

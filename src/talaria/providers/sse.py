"""Take a stream of server-sent events apart, however the network cut it."""

from talaria.core.errors import MalformedReply

MAX_LINE = 32 * 1024 * 1024


class EventParser:
    """Collects bytes and gives the data of each event that is complete.

    Lines end in LF, CRLF or CR; several data lines of one event are joined by LF; comments, event names, ids and
    an event that never ends in a blank line are left out.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._first = True
        self._after_cr = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that ``chunk`` completes, oldest first."""
        events: list[bytes] = []
        for line in self._lines(chunk):
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif not line and self._data:
                events.append(self._data[0] if len(self._data) == 1 else b"\n".join(self._data))
                self._data = []
            elif line == b"data":
                self._data.append(b"")
        return events

    def _lines(self, chunk: bytes) -> list[bytes]:
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return []
        lines = (self._rest + chunk).splitlines()
        self._after_cr = chunk.endswith(b"\r")
        self._rest = b"" if chunk.endswith((b"\n", b"\r")) else lines.pop()
        if len(self._rest) > MAX_LINE:
            raise MalformedReply(f"a line of the stream is longer than {MAX_LINE} bytes")
        if self._first and lines:
            self._first = False
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        return lines

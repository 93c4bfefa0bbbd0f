"""Find lines in growing output: each is found once, and reports are rate-limited."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from talaria.tools.output import readable
from talaria.tools.process.run_folder import ProcessFiles

MOST_NOTICES = 10
APART = timedelta(seconds=10)
_MOST_LINES = 20
_LONGEST_LINE = 300
_CHUNK = 262_144


class Lookout:
    """The watch on one output; ``position`` is how far it has read, ``matches`` the number of reports."""

    def __init__(
        self,
        files: ProcessFiles,
        patterns: Sequence[str],
        position: int = 0,
        matches: int = 0,
        told_at: datetime | None = None,
    ) -> None:
        self.position = position
        self.matches = matches
        self.lines: list[str] = []
        self.left_out = 0
        self.told_at = told_at
        self._files = files
        self._patterns = tuple(patterns)
        self._seen = -1

    @property
    def muted(self) -> bool:
        """Return whether it has reported too often, or has nothing to search for."""
        return not self._patterns or self.matches >= MOST_NOTICES

    @property
    def has_news(self) -> bool:
        """Return whether there is new output; called often, for many processes."""
        return self._files.size != self._seen and not self.muted

    def look(self, *, last: bool = False) -> None:
        """Search the new output; a line counts when it is complete, or nothing more can come."""
        if self.muted:
            return
        size = self._seen = self._files.size
        if size < self.position:  # the file was started again
            self.position = 0
        while self.position < size:
            raw = self._files.read(self.position, _CHUNK)
            whole = raw if last or (len(raw) == _CHUNK and b"\n" not in raw) else raw[: raw.rfind(b"\n") + 1]
            if not whole:
                return
            self.position += len(whole)
            self._keep(whole)

    def is_due(self, now: datetime) -> bool:
        """Return whether there is something to report, and the rate limit allows it."""
        return bool(self.lines) and (self.told_at is None or now - self.told_at >= APART)

    def tell(self, now: datetime) -> None:
        """Record that the matches were reported."""
        self.lines, self.left_out = [], 0
        self.matches += 1
        self.told_at = now

    def _keep(self, raw: bytes) -> None:
        for line in readable(raw).splitlines():
            if any(pattern in line for pattern in self._patterns):
                if len(self.lines) < _MOST_LINES:
                    self.lines.append(line[:_LONGEST_LINE])
                else:
                    self.left_out += 1

"""Look for lines in an output that grows: each is found once, and told no more often than somebody wants to read."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from talaria.tools.output import readable
from talaria.tools.process.files import ProcessFiles

MOST_NOTICES = 10
APART = timedelta(seconds=10)
_MOST_LINES = 20
_LONGEST_LINE = 300
_CHUNK = 262_144


class Lookout:
    """Watches one output for some texts; ``position`` is how far it has looked, ``matches`` how often it has told."""

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
        """Whether it has told too often, or has nothing to look for."""
        return not self._patterns or self.matches >= MOST_NOTICES

    @property
    def has_news(self) -> bool:
        """Whether something was printed since it has looked; asked often, of many."""
        return self._files.size != self._seen and not self.muted

    def look(self, *, last: bool = False) -> None:
        """Look through what was printed since; a line counts when it is whole, or nothing more can come."""
        if self.muted:
            return
        size = self._seen = self._files.size
        if size < self.position:  # it was begun anew
            self.position = 0
        while self.position < size:
            raw = self._files.read(self.position, _CHUNK)
            whole = raw if last or (len(raw) == _CHUNK and b"\n" not in raw) else raw[: raw.rfind(b"\n") + 1]
            if not whole:
                return
            self.position += len(whole)
            self._keep(whole)

    def is_due(self, now: datetime) -> bool:
        """Tell whether there is something to tell, and it may be told."""
        return bool(self.lines) and (self.told_at is None or now - self.told_at >= APART)

    def tell(self, now: datetime) -> None:
        """Take note that what was found is told."""
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

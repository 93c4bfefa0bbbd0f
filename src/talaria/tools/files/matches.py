"""What a search found, and how to find it without another program."""

import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Event

from talaria.tools.files.documents import is_binary
from talaria.tools.files.ignored import glob_expression
from talaria.tools.files.walk import walk
from talaria.tools.output import OUTPUT_LIMIT, cut_output

LONGEST_LINE = 300
LARGEST_FILE = 5 * 1024 * 1024
# Not searched unless named: a search in a whole home must not bring these up.
SECRET_NAMES = (
    ".env", ".env.*", "*.pem", "*.key", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".pgpass", ".npmrc",
    ".pypirc", ".git-credentials", ".ssh", ".aws", ".gnupg", ".kube",
)  # fmt: skip
_SNIFFED = 8192


class Matches:
    """Lines found below ``place``, at most ``limit`` that match; ``stopped`` ends a search in another thread."""

    def __init__(self, place: Path, limit: int) -> None:
        self.place = place
        self.full = False
        self.stopped = Event()
        self._limit = limit
        self._count = 0
        self._lines: list[str] = []

    @property
    def empty(self) -> bool:
        """Whether nothing was found."""
        return not self._lines

    def add(self, line: str, *, matches: bool = True) -> bool:
        """Take one line, and return whether there is room for more."""
        if matches and self._count == self._limit:
            self.full = True
            return False
        self._count += matches
        self._lines.append(line)
        return not self.stopped.is_set()

    def named(self, path: Path) -> str:
        """Return a path as it is shown: below the place that was searched."""
        if path == self.place:
            return path.name
        return path.relative_to(self.place).as_posix()

    def text(self) -> str:
        """Return all lines, with a note where there are more."""
        if not self._lines:
            return "Nothing found."
        text = cut_output("\n".join(self._lines), limit=OUTPUT_LIMIT, rest="narrow the search")
        return text + (f"\n[the first {self._limit}; narrow the search, or raise limit]" if self.full else "")


def find_names(found: Matches, pattern: str) -> None:
    """Add the files and folders whose path or name fits a glob."""
    expression = re.compile(("" if "/" in pattern else "(?:.*/)?") + glob_expression(pattern.lstrip("/")) + r"\Z")
    for entry in walk(found.place):
        name = found.named(entry.path)
        if expression.match(name) and not found.add(f"{name}/" if entry.is_folder else name):
            return


def scan_contents(found: Matches, expression: re.Pattern[str], *, glob: str, context: int) -> None:
    """Add the lines in which the expression occurs, file by file."""
    for path in _files(found.place, glob):
        for line, matches in _matching(path, found.named(path), expression, context):
            if not found.add(line, matches=matches):
                return


def _files(place: Path, glob: str) -> Iterator[Path]:
    if place.is_file():
        yield place
        return
    for entry in walk(place):
        if entry.is_folder or entry.size > LARGEST_FILE or not _wanted(entry.path, place, glob):
            continue
        yield entry.path


def _wanted(path: Path, place: Path, glob: str) -> bool:
    below = path.relative_to(place)
    if any(fnmatchcase(part, secret) for part in below.parts for secret in SECRET_NAMES):
        return False
    subject = below.as_posix() if "/" in glob else path.name
    return not glob or re.match(glob_expression(glob) + r"\Z", subject) is not None


def _matching(path: Path, name: str, expression: re.Pattern[str], context: int) -> Iterator[tuple[str, bool]]:
    try:
        raw = path.read_bytes()
    except OSError:
        return
    if is_binary(raw[:_SNIFFED]):
        return
    lines = raw.decode("utf-8", "replace").splitlines()
    hits = [index for index, line in enumerate(lines) if expression.search(line)]
    yield from _with_context(lines, hits, name, context)


def _with_context(lines: Sequence[str], hits: Sequence[int], name: str, context: int) -> Iterator[tuple[str, bool]]:
    """Yield matching lines as ``name:4:text`` and those around them as ``name-5-text``."""
    matching, last = set(hits), -1
    for hit in hits:
        first = max(last + 1, hit - context)
        if context and last >= 0 and first > last + 1:
            yield "--", False
        for index in range(first, min(len(lines), hit + context + 1)):
            mark = ":" if index in matching else "-"
            yield f"{name}{mark}{index + 1}{mark}{lines[index][:LONGEST_LINE]}", index in matching
            last = index

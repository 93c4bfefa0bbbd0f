"""Search results, and a search without external programs."""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from talaria.tools.files.gitignore import compile_pattern, glob_expression
from talaria.tools.files.text_file import is_binary
from talaria.tools.files.walk import walk
from talaria.tools.output import OUTPUT_LIMIT, cut_output

if TYPE_CHECKING:
    from talaria.tools.files.linear_pattern import LinearPattern

LONGEST_LINE = 300
LARGEST_FILE = 5 * 1024 * 1024
# Not searched unless named: searching a whole home folder must not return these.
SECRET_NAMES = (
    ".env", ".env.*", "*.pem", "*.key", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".pgpass", ".npmrc",
    ".pypirc", ".git-credentials", ".ssh", ".aws", ".gnupg", ".kube",
)  # fmt: skip
_SNIFFED = 8192


class Matches:
    """Lines found below ``place``, at most ``limit`` matches; ``stopped`` ends a search in another thread."""

    def __init__(self, place: Path, limit: int) -> None:
        self.place = place
        self.full = False
        self.stopped = Event()
        self._limit = limit
        self._count = 0
        self._lines: list[str] = []

    @property
    def empty(self) -> bool:
        """Return whether nothing was found."""
        return not self._lines

    def add(self, line: str, *, matches: bool = True) -> bool:
        """Add one line, and return whether there is room for more."""
        if matches and self._count == self._limit:
            self.full = True
            return False
        self._count += matches
        self._lines.append(line)
        return not self.stopped.is_set()

    def named(self, path: Path) -> str:
        """Return a path relative to the searched folder."""
        if path == self.place:
            return path.name
        return path.relative_to(self.place).as_posix()

    def text(self) -> str:
        """Return all lines, with a note if there are more."""
        if not self._lines:
            return "Nothing found."
        text = cut_output("\n".join(self._lines), limit=OUTPUT_LIMIT, rest="narrow the search")
        return text + (f"\n[first {self._limit} results; narrow the search, or raise limit]" if self.full else "")


def find_names(found: Matches, pattern: str) -> None:
    """Add the files and folders whose path or name matches a glob; raises `PatternInvalid`."""
    expression = _glob(("" if "/" in pattern else "**/") + pattern.lstrip("/"))
    for entry in walk(found.place):
        name = found.named(entry.path)
        if expression.matches(name) and not found.add(f"{name}/" if entry.is_folder else name):
            return


def scan_contents(found: Matches, pattern: str, *, glob: str, context: int) -> None:
    """Add the lines that match the expression, file by file; raises `PatternInvalid`."""
    expression = compile_pattern(pattern)
    for path in _files(found.place, glob):
        for line, matches in _matching(path, found.named(path), expression, context):
            if not found.add(line, matches=matches):
                return


def _files(place: Path, glob: str) -> Iterator[Path]:
    if place.is_file():
        yield place
        return
    wanted = _glob(glob) if glob else None
    for entry in walk(place):
        if entry.is_folder or entry.size > LARGEST_FILE or not _is_wanted(entry.path, place, glob, wanted):
            continue
        yield entry.path


def _glob(glob: str) -> "LinearPattern":
    return compile_pattern(glob_expression(glob))


def _is_wanted(path: Path, place: Path, glob: str, wanted: "LinearPattern | None") -> bool:
    below = path.relative_to(place)
    if any(fnmatchcase(part, secret) for part in below.parts for secret in SECRET_NAMES):
        return False
    subject = below.as_posix() if "/" in glob else path.name
    return wanted is None or wanted.matches(subject)


def _matching(path: Path, name: str, expression: "LinearPattern", context: int) -> Iterator[tuple[str, bool]]:
    try:
        raw = path.read_bytes()
    except OSError:
        return
    if is_binary(raw[:_SNIFFED]):
        return
    lines = raw.decode("utf-8", "replace").splitlines()
    hits = [index for index, line in enumerate(lines) if expression.occurs_in(line)]
    yield from _with_context(lines, hits, name, context)


def _with_context(lines: Sequence[str], hits: Sequence[int], name: str, context: int) -> Iterator[tuple[str, bool]]:
    """Yield matching lines as ``name:4:text`` and context lines as ``name-5-text``."""
    matching, last = set(hits), -1
    for hit in hits:
        first = max(last + 1, hit - context)
        if context and last >= 0 and first > last + 1:
            yield "--", False
        for index in range(first, min(len(lines), hit + context + 1)):
            mark = ":" if index in matching else "-"
            yield f"{name}{mark}{index + 1}{mark}{lines[index][:LONGEST_LINE]}", index in matching
            last = index

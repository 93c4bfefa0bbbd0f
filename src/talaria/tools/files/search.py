"""The search_files tool: search file contents or names, with ripgrep where available."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from threading import Event
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.tools.files.text_file import failing, is_binary
from talaria.tools.files.walk import ALWAYS_IGNORED, LinearPattern, translate_glob, walk
from talaria.tools.output import OUTPUT_LIMIT, cut_output

LONGEST_LINE = 300
LARGEST_FILE = 5 * 1024 * 1024
# Not searched unless named: searching a whole home folder must not return these.
SECRET_NAMES = (
    ".env", ".env.*", "*.pem", "*.key", "id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", ".netrc", ".pgpass", ".npmrc",
    ".pypirc", ".git-credentials", ".ssh", ".aws", ".gnupg", ".kube",
)  # fmt: skip
_SNIFFED = 8192
_FAILED = 2
_LINE_BUFFER = 1024 * 1024
# Separators that no path contains, to tell matching lines from context lines.
_MATCH, _CONTEXT = "\x1e", "\x1f"


class Matches:
    """Lines found below ``root``, at most ``limit`` matches; ``stopped`` ends a search in another thread."""

    def __init__(self, root: Path, limit: int) -> None:
        self.root = root
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

    def make_relative(self, path: Path) -> str:
        """Return a path relative to the searched folder."""
        if path == self.root:
            return path.name
        return path.relative_to(self.root).as_posix()

    def format_output(self) -> str:
        """Return all lines, with a note if there are more."""
        if not self._lines:
            return "Nothing found."
        text = cut_output("\n".join(self._lines), limit=OUTPUT_LIMIT, rest="narrow the search")
        return text + (f"\n[first {self._limit} results; narrow the search, or raise limit]" if self.full else "")


def find_names(found: Matches, pattern: str) -> None:
    """Add the files and folders whose path or name matches a glob; raises `PatternInvalid`."""
    expression = _compile_glob(("" if "/" in pattern else "**/") + pattern.lstrip("/"))
    for entry in walk(found.root):
        name = found.make_relative(entry.path)
        if expression.matches(name) and not found.add(f"{name}/" if entry.is_folder else name):
            return


def scan_contents(found: Matches, pattern: str, *, glob: str, context: int) -> None:
    """Add the lines that match the expression, file by file; raises `PatternInvalid`."""
    expression = LinearPattern(pattern)
    for path in _iterate_files(found.root, glob):
        if found.stopped.is_set():
            return
        for line, matches in _match_lines(path, found.make_relative(path), expression, context):
            if not found.add(line, matches=matches):
                return


def _iterate_files(root: Path, glob: str) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    pattern = _compile_glob(glob) if glob else None
    for entry in walk(root):
        if entry.is_folder or entry.size > LARGEST_FILE or not _matches_glob(entry.path, root, glob, pattern):
            continue
        yield entry.path


def _compile_glob(glob: str) -> LinearPattern:
    return LinearPattern(translate_glob(glob))


def _matches_glob(path: Path, root: Path, glob: str, pattern: LinearPattern | None) -> bool:
    below = path.relative_to(root)
    if any(fnmatchcase(part, secret) for part in below.parts for secret in SECRET_NAMES):
        return False
    subject = below.as_posix() if "/" in glob else path.name
    return pattern is None or pattern.matches(subject)


def _match_lines(path: Path, name: str, expression: LinearPattern, context: int) -> Iterator[tuple[str, bool]]:
    """Yield matching lines as ``name:4:text`` and context lines as ``name-5-text``, and whether they match."""
    try:
        raw = path.read_bytes()
    except OSError:
        return
    if is_binary(raw[:_SNIFFED]):
        return
    lines = raw.decode("utf-8", "replace").splitlines()
    last, due = -1, -1  # the last line that was shown, and the last one of the context of a match
    for index, line in enumerate(lines):
        if expression.occurs_in(line):
            first = max(last + 1, index - context)
            if context and last >= 0 and first > last + 1:
                yield "--", False
            for earlier in range(first, index):
                yield f"{name}-{earlier + 1}-{lines[earlier][:LONGEST_LINE]}", False
            yield f"{name}:{index + 1}:{line[:LONGEST_LINE]}", True
            last, due = index, index + context
        elif index <= due:
            yield f"{name}-{index + 1}-{line[:LONGEST_LINE]}", False
            last = index


async def search_with_ripgrep(program: str, found: Matches, pattern: str, *, glob: str, context: int) -> None:
    """Add the lines that ripgrep finds, up to the limit."""
    async with _run_ripgrep(_build_argv(program, found, pattern, glob, context), found) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        async for raw in process.stdout:
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            if not found.add(_format_line(line, found), matches=_MATCH in line):
                return
        remarks = (await process.stderr.read()).decode("utf-8", "replace")
        if await process.wait() == _FAILED and found.empty:
            raise ToolFailed(f"Search failed: {remarks.strip()[:1000]}")


def _build_argv(program: str, found: Matches, pattern: str, glob: str, context: int) -> list[str]:
    root = found.root
    return [
        *(program, "--no-config", "--no-heading", "--with-filename", "--line-number", "--color=never", "--sort=path"),
        *(
            "--hidden",
            "--no-require-git",
            "--no-messages",
            f"--max-filesize={LARGEST_FILE}",
            f"--max-columns={LONGEST_LINE}",
        ),
        *("--max-columns-preview", f"--field-match-separator={_MATCH}", f"--field-context-separator={_CONTEXT}"),
        *(f"--context={context}", *([f"--glob={glob}"] if glob else [])),
        *(() if root.is_file() else (f"--glob=!{name}" for name in (*sorted(ALWAYS_IGNORED), *SECRET_NAMES))),
        *("-e", pattern, "--", str(root) if root.is_file() else "."),
    ]


def _format_line(line: str, found: Matches) -> str:
    if found.root.is_file():
        line = line.replace(str(found.root), found.root.name, 1)
    return line.removeprefix("./").replace(_MATCH, ":", 2).replace(_CONTEXT, "-", 2)


@asynccontextmanager
async def _run_ripgrep(argv: list[str], found: Matches) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=found.root.parent if found.root.is_file() else found.root,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_LINE_BUFFER,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


class SearchFilesArguments(Struct, frozen=True):
    """A pattern, and where to search."""

    pattern: Annotated[str, Meta(description="regex; glob for target=names")]
    path: str = "."
    target: Literal["content", "names"] = "content"
    glob: Annotated[str, Meta(description="only files matching e.g. *.py")] = ""
    context: Annotated[int, Meta(ge=0, le=20)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


class SearchFiles:
    """Searches with ripgrep where it is installed, otherwise in Python."""

    name = "search_files"
    description = "Search file contents, or find files by name. Respects .gitignore."
    effect = Effect.READS
    arguments = SearchFilesArguments

    def __init__(self, *, ripgrep: str | None) -> None:
        self._ripgrep = ripgrep

    @classmethod
    def with_installed_ripgrep(cls) -> "SearchFiles":
        """Return the tool with the ripgrep of this machine, if there is one."""
        from shutil import which  # noqa: PLC0415 (loaded with the first search)

        return cls(ripgrep=which("rg"))

    def proposed_action(self, arguments: SearchFilesArguments) -> ProposedAction:
        """Describe where it would search."""
        return ProposedAction("read", arguments.path)

    async def run(self, arguments: SearchFilesArguments, call: Call) -> ToolOutput:
        """Return matches as ``file:line:text``, with a note if there are more."""
        root = call.workspace.resolve(arguments.path)
        with failing(root):
            await asyncio.to_thread(root.stat)
        found = Matches(root, arguments.limit)
        try:
            await self._find(found, arguments)
        finally:
            found.stopped.set()
        return ToolOutput(found.format_output())

    async def _find(self, found: Matches, arguments: SearchFilesArguments) -> None:
        if arguments.target == "names":
            await _search_in_thread(find_names, found, arguments.pattern)
        elif self._ripgrep:
            await search_with_ripgrep(
                self._ripgrep, found, arguments.pattern, glob=arguments.glob, context=arguments.context
            )
        else:
            scan = partial(scan_contents, glob=arguments.glob, context=arguments.context)
            await _search_in_thread(scan, found, arguments.pattern)


async def _search_in_thread(search: Callable[[Matches, str], None], found: Matches, pattern: str) -> None:
    """Search in a thread; raises `ToolFailed` for a pattern that can't be matched in linear time."""
    try:
        await asyncio.to_thread(search, found, pattern)
    except ValueError as error:
        raise ToolFailed(f"Unsupported pattern: {error}. Lookaround and backreferences are not available.") from error

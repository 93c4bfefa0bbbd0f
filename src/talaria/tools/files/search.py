"""The search_files tool: search file contents or names, with ripgrep where available."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.tools.files.gitignore import ALWAYS_IGNORED
from talaria.tools.files.search_results import (
    LARGEST_FILE,
    LONGEST_LINE,
    SECRET_NAMES,
    Matches,
    find_names,
    scan_contents,
)
from talaria.tools.files.text_file import failing

_FAILED = 2


_LINE_BUFFER = 1024 * 1024


async def search_with_ripgrep(program: str, found: Matches, pattern: str, *, glob: str, context: int) -> None:
    """Add the lines that ripgrep finds, up to the limit."""
    async with _running(_argv(program, found, pattern, glob, context), found) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        async for raw in process.stdout:
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            if not found.add(_shown(line, found), matches=_MATCH in line):
                return
        remarks = (await process.stderr.read()).decode("utf-8", "replace")
        if await process.wait() == _FAILED and found.empty:
            raise ToolFailed(f"Search failed: {remarks.strip()[:1000]}")


# Separators that no path contains, to tell matching lines from context lines.
_MATCH, _CONTEXT = "\x1e", "\x1f"


def _argv(program: str, found: Matches, pattern: str, glob: str, context: int) -> list[str]:
    place = found.place
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
        *(() if place.is_file() else (f"--glob=!{name}" for name in (*sorted(ALWAYS_IGNORED), *SECRET_NAMES))),
        *("-e", pattern, "--", str(place) if place.is_file() else "."),
    ]


def _shown(line: str, found: Matches) -> str:
    if found.place.is_file():
        line = line.replace(str(found.place), found.place.name, 1)
    return line.removeprefix("./").replace(_MATCH, ":", 2).replace(_CONTEXT, "-", 2)


@asynccontextmanager
async def _running(argv: list[str], found: Matches) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *argv,
        cwd=found.place.parent if found.place.is_file() else found.place,
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

    def __init__(self, *, ripgrep: str | None = shutil.which("rg")) -> None:
        self._ripgrep = ripgrep

    def proposed_action(self, arguments: SearchFilesArguments) -> ProposedAction:
        """Describe where it would search."""
        return ProposedAction("read", arguments.path)

    async def run(self, arguments: SearchFilesArguments, call: Call) -> ToolOutput:
        """Return matches as ``file:line:text``, with a note if there are more."""
        place = call.workspace.resolve(arguments.path)
        with failing(place):
            await asyncio.to_thread(place.stat)
        found = Matches(place, arguments.limit)
        try:
            await self._find(found, arguments)
        finally:
            found.stopped.set()
        return ToolOutput(found.text())

    async def _find(self, found: Matches, wanted: SearchFilesArguments) -> None:
        if wanted.target == "names":
            await _linear(find_names, found, wanted.pattern)
        elif self._ripgrep:
            await search_with_ripgrep(self._ripgrep, found, wanted.pattern, glob=wanted.glob, context=wanted.context)
        else:
            scan = partial(scan_contents, glob=wanted.glob, context=wanted.context)
            await _linear(scan, found, wanted.pattern)


async def _linear(search: Callable[[Matches, str], None], found: Matches, pattern: str) -> None:
    """Search in a thread; raises `ToolFailed` for a pattern that can't be matched in linear time."""
    try:
        await asyncio.to_thread(search, found, pattern)
    except ValueError as error:
        raise ToolFailed(f"Unsupported pattern: {error}. Lookaround and backreferences are not available.") from error

"""The tool that finds text in files, and files by name."""

import asyncio
import shutil
from collections.abc import Callable
from functools import partial
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Deed, Effect, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.tools.files.documents import failing
from talaria.tools.files.matches import Matches, find_names, scan_contents
from talaria.tools.files.ripgrep import search_with_ripgrep


class SearchFilesArguments(Struct, frozen=True):
    """What to find, and where."""

    pattern: Annotated[str, Meta(description="regex; glob for target=names")]
    path: str = "."
    target: Literal["content", "names"] = "content"
    glob: Annotated[str, Meta(description="search only files like *.py")] = ""
    context: Annotated[int, Meta(ge=0, le=20)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50


class SearchFiles:
    """Finds lines with ripgrep where that is installed, else by itself."""

    name = "search_files"
    description = "Search file contents or find files by name; honours .gitignore."
    effect = Effect.READS
    arguments = SearchFilesArguments

    def __init__(self, *, ripgrep: str | None = shutil.which("rg")) -> None:
        self._ripgrep = ripgrep

    def deed(self, arguments: SearchFilesArguments) -> Deed:
        """Say where would be searched."""
        return Deed("read", arguments.path)

    async def run(self, arguments: SearchFilesArguments, call: Call) -> ToolOutput:
        """Return what was found as ``file:line:text``, with a note where there is more."""
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
    """Search in a thread; raises `ToolFailed` for a pattern that cannot be matched in linear time."""
    try:
        await asyncio.to_thread(search, found, pattern)
    except ValueError as error:
        raise ToolFailed(
            f"The pattern cannot be used: {error}. Lookaround and backreferences are not supported."
        ) from error

"""Search contents with ripgrep."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from talaria.core.errors import ToolFailed
from talaria.tools.files.ignored import ALWAYS_IGNORED
from talaria.tools.files.matches import LARGEST_FILE, LONGEST_LINE, SECRET_NAMES, Matches

_FAILED = 2
_LINE_BUFFER = 1024 * 1024


async def search_with_ripgrep(program: str, found: Matches, pattern: str, *, glob: str, context: int) -> None:
    """Add the lines that ripgrep finds, until there is no room for more."""
    async with _running(_argv(program, found, pattern, glob, context), found) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        async for raw in process.stdout:
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            if not found.add(_shown(line, found), matches=_MATCH in line):
                return
        remarks = (await process.stderr.read()).decode("utf-8", "replace")
        if await process.wait() == _FAILED and found.empty:
            raise ToolFailed(f"The search failed: {remarks.strip()[:1000]}")


# Separators that no path has, so that matching lines are told from those around them.
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

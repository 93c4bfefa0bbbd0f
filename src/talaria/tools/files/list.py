"""The list_files tool: show the content of a folder."""

import asyncio
import stat
from itertools import islice
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.tools.files.text_file import failing
from talaria.tools.files.walk import Entry, walk

_UNITS = ("B", "KB", "MB", "GB", "TB")
_STEP = 1024


class ListFilesArguments(Struct, frozen=True):
    """A folder, and how much of it to show."""

    path: str = "."
    depth: Annotated[int, Meta(ge=1, le=10)] = 2
    limit: Annotated[int, Meta(ge=1, le=2000)] = 200


class ListFiles:
    """Shows a folder as a tree with sizes."""

    name = "list_files"
    description = "Show a folder as a tree with sizes. Skips what .gitignore excludes."
    effect = Effect.READS
    arguments = ListFilesArguments

    def proposed_action(self, arguments: ListFilesArguments) -> ProposedAction:
        """Describe what would be listed."""
        return ProposedAction("read", arguments.path)

    async def run(self, arguments: ListFilesArguments, call: Call) -> ToolOutput:
        """Return the tree, with a note where it is truncated."""
        folder = call.workspace.resolve(arguments.path)
        return ToolOutput(await asyncio.to_thread(_tree, folder, arguments))


def _tree(folder: Path, wanted: ListFilesArguments) -> str:
    with failing(folder):
        if not stat.S_ISDIR(folder.stat().st_mode):
            raise ToolFailed(f"{folder} is not a folder. Use read_file.")
        entries = list(islice(walk(folder, depth=wanted.depth), wanted.limit + 1))
    lines = [f"{folder}/", *map(_line, entries[: wanted.limit])]
    if len(entries) > wanted.limit:
        lines.append("[… more entries: raise limit, or list a subfolder]")
    return "\n".join(lines) if entries else f"{folder}/ is empty"


def _line(entry: Entry) -> str:
    name = f"{entry.path.name}/" if entry.is_folder else f"{entry.path.name}  {_size_in_words(entry.size)}"
    return "  " * entry.depth + name


def _size_in_words(size: float) -> str:
    for unit in _UNITS[:-1]:
        if size < _STEP:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _STEP
    return f"{size:.1f} {_UNITS[-1]}"

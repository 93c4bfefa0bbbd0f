"""The tool that writes a whole file."""

import asyncio
from pathlib import Path

from msgspec import Struct

from talaria.contracts.tool import Call, Deed, Effect, ToolOutput
from talaria.tools.files.documents import refuse_mask, save_file


class WriteFileArguments(Struct, frozen=True):
    """Which file, and all that shall stand in it."""

    path: str
    content: str


class WriteFile:
    """Creates or replaces files at once; written twice, the result is the same."""

    name = "write_file"
    description = "Create a file or replace all of it; missing folders are made. To change parts use edit_file."
    effect = Effect.IDEMPOTENT
    arguments = WriteFileArguments

    def deed(self, arguments: WriteFileArguments) -> Deed:
        """Say what would be written."""
        return Deed("write", arguments.path)

    async def run(self, arguments: WriteFileArguments, call: Call) -> ToolOutput:
        """Write it and say how the size changed."""
        refuse_mask(arguments.content)
        path = call.workspace.resolve(arguments.path)
        return ToolOutput(await asyncio.to_thread(_write, path, arguments.content))


def _write(path: Path, content: str) -> str:
    before = path.stat().st_size if path.is_file() else None
    raw = content.encode("utf-8", "surrogateescape")
    save_file(path, raw)
    lines = content.count("\n") + (not content.endswith("\n") and bool(content))
    if before is None:
        return f"Created {path}: {len(raw):,} bytes, {lines:,} lines."
    return f"Replaced {path}: {before:,} → {len(raw):,} bytes, {lines:,} lines."

"""The write_file tool."""

import asyncio
from pathlib import Path

from msgspec import Struct

from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput, Workspace
from talaria.core.errors import ToolFailed
from talaria.tools.files.diff import text_diff
from talaria.tools.files.text_file import load_document, refuse_mask, save_file


class WriteFileArguments(Struct, frozen=True):
    """A file and its complete content."""

    path: str
    content: str

    def diff(self, workspace: Workspace) -> str:
        """Return the proposed change; empty for a new file, and for one that isn't text."""
        return _replacement_diff(workspace.resolve(self.path), self.content)


class WriteFile:
    """Creates or replaces files atomically; repeating a call gives the same result."""

    name = "write_file"
    description = "Create or overwrite a file; missing folders are created. To change parts of a file use edit_file."
    effect = Effect.IDEMPOTENT
    arguments = WriteFileArguments

    def proposed_action(self, arguments: WriteFileArguments) -> ProposedAction:
        """Describe what would be written."""
        return ProposedAction("write", arguments.path, change=arguments)

    async def run(self, arguments: WriteFileArguments, call: Call) -> ToolOutput:
        """Write the file and report how its size changed."""
        refuse_mask(arguments.content)
        path = call.workspace.resolve(arguments.path)
        return await asyncio.to_thread(_write, path, arguments.content)


def _replacement_diff(path: Path, content: str) -> str:
    try:
        before = load_document(path).text
    except ToolFailed:
        return ""
    return text_diff(before, content.replace("\r\n", "\n"))


def _write(path: Path, content: str) -> ToolOutput:
    diff = _replacement_diff(path, content)
    before = path.stat().st_size if path.is_file() else None
    raw = content.encode("utf-8", "surrogateescape")
    save_file(path, raw)
    lines = content.count("\n") + (not content.endswith("\n") and bool(content))
    if before is None:
        return ToolOutput(f"Created {path}: {len(raw):,} bytes, {lines:,} lines.")
    return ToolOutput(f"Replaced {path}: {before:,} → {len(raw):,} bytes, {lines:,} lines.", diff=diff)

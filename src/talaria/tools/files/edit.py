"""The tool that changes parts of a file."""

import asyncio
import re
from collections.abc import Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Deed, Effect, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.tools.files.documents import load_document, refuse_mask, save_file
from talaria.tools.files.patch import apply_patch
from talaria.tools.files.replacement import replace_passage
from talaria.tools.output import cut_output

_LONGEST_DIFF = 4_000


class EditFileArguments(Struct, frozen=True):
    """Which file, and either a passage with its replacement or a patch."""

    path: str
    old_text: Annotated[str, Meta(description="must occur once")] = ""
    new_text: str = ""
    replace_all: bool = False
    patch: Annotated[str, Meta(description="unified diff, instead of the texts")] = ""


class EditFile:
    """Replaces a passage or applies a patch.

    Not idempotent: run again, it finds nothing to replace, or replaces inside what it put there. So what a crash
    interrupted is reported and not repeated.
    """

    name = "edit_file"
    description = "Replace old_text by new_text in a file, or apply a patch with several hunks. Returns the diff."
    effect = Effect.IRREVERSIBLE
    arguments = EditFileArguments

    def deed(self, arguments: EditFileArguments) -> Deed:
        """Say what would be written."""
        return Deed("write", arguments.path)

    async def run(self, arguments: EditFileArguments, call: Call) -> ToolOutput:
        """Change the file and return what changed."""
        path = call.workspace.resolve(arguments.path)
        return ToolOutput(await asyncio.to_thread(_edit, path, arguments))


def _edit(path: Path, arguments: EditFileArguments) -> str:
    refuse_mask(arguments.new_text + arguments.patch)
    if arguments.patch and arguments.old_text:
        raise ToolFailed("Give old_text and new_text, or a patch, not both.")
    document = load_document(path)
    if arguments.patch:
        text = apply_patch(document.text, _unix(arguments.patch))
    else:
        old, new = _unix(arguments.old_text), _unix(arguments.new_text)
        text = replace_passage(document.text, old, new, everywhere=arguments.replace_all)
    if text == document.text:
        raise ToolFailed("That would change nothing.")
    save_file(path, msgspec.structs.replace(document, text=text).raw)
    return _short_diff(document.text, text, path.name)


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")


def _short_diff(old: str, new: str, name: str) -> str:
    before, after = old.splitlines(), new.splitlines()
    head = _common(before, after)
    tail = _common(before[head:][::-1], after[head:][::-1])
    first, last = max(0, head - 2), max(0, tail - 2)
    old_part, new_part = before[first : len(before) - last], after[first : len(after) - last]
    diff = list(unified_diff(old_part, new_part, lineterm="", n=2))[2:]
    text = "\n".join((f"{name}:", *(_moved(line, first) if line.startswith("@@") else line for line in diff)))
    return cut_output(text.encode("utf-8", "replace").decode(), limit=_LONGEST_DIFF)


def _moved(header: str, lines: int) -> str:
    return re.sub(r"([-+])(\d+)", lambda found: f"{found[1]}{int(found[2]) + lines}", header)


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines are the same from the beginning on."""
    pairs = zip(one, other, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))

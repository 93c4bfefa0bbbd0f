"""The edit_file tool: change parts of a file."""

import asyncio
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput, Workspace
from talaria.core.errors import ToolFailed
from talaria.tools.files.diff import text_diff
from talaria.tools.files.fuzzy_match import replace_passage
from talaria.tools.files.patch import apply_patch
from talaria.tools.files.text_file import Document, load_document, refuse_mask, save_file
from talaria.tools.output import cut_output

_LONGEST_DIFF = 4_000


class EditFileArguments(Struct, frozen=True):
    """A file, and either a passage with its replacement or a patch."""

    path: str
    old_text: Annotated[str, Meta(description="must occur once")] = ""
    new_text: str = ""
    replace_all: bool = False
    patch: Annotated[str, Meta(description="unified diff, instead of old_text and new_text")] = ""

    def diff(self, workspace: Workspace) -> str:
        """Return the proposed change; empty if the call would fail."""
        path = workspace.resolve(self.path)
        try:
            document = load_document(path)
            return text_diff(document.text, _edited(document, self))
        except ToolFailed:
            return ""


class EditFile:
    """Replaces a passage or applies a patch.

    Not idempotent: repeated, it finds nothing to replace, or replaces inside its own result. An interrupted call is
    therefore reported and not repeated.
    """

    name = "edit_file"
    description = "Replace old_text with new_text in a file, or apply a patch with several hunks. Returns the diff."
    effect = Effect.IRREVERSIBLE
    arguments = EditFileArguments

    def proposed_action(self, arguments: EditFileArguments) -> ProposedAction:
        """Describe the change."""
        return ProposedAction("write", arguments.path, change=arguments)

    async def run(self, arguments: EditFileArguments, call: Call) -> ToolOutput:
        """Change the file and return what changed."""
        path = call.workspace.resolve(arguments.path)
        return await asyncio.to_thread(_edit, path, arguments)


def _edit(path: Path, arguments: EditFileArguments) -> ToolOutput:
    refuse_mask(arguments.new_text + arguments.patch)
    document = load_document(path)
    text = _edited(document, arguments)
    save_file(path, msgspec.structs.replace(document, text=text).raw)
    diff = text_diff(document.text, text)
    return ToolOutput(cut_output(f"{path.name}:\n{diff}", limit=_LONGEST_DIFF), diff=diff)


def _edited(document: Document, arguments: EditFileArguments) -> str:
    """Return the text after the change, or raise `ToolFailed`."""
    if arguments.patch and arguments.old_text:
        raise ToolFailed("Give either old_text and new_text, or a patch.")
    if arguments.patch:
        text = apply_patch(document.text, _unix(arguments.patch))
    else:
        old, new = _unix(arguments.old_text), _unix(arguments.new_text)
        text = replace_passage(document.text, old, new, everywhere=arguments.replace_all)
    if text == document.text:
        raise ToolFailed("That wouldn't change anything.")
    return text


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")

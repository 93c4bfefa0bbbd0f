"""The memory tool."""

import asyncio
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.contracts.stores.sessions import Viewer
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.tools.memory.notebook import FILES, Book, Notebook, notebook_for


class MemoryArguments(Struct, frozen=True):
    """An entry to add, replace or remove."""

    action: Literal["add", "replace", "remove"]
    text: Annotated[str, Meta(description="New entry, one paragraph")] = ""
    old: Annotated[str, Meta(description="Part of the entry to change or remove")] = ""
    book: Annotated[Book, Meta(description="user: about the person")] = "memory"


class Memory:
    """Two files for each person and each group: notes on the work, and facts about the person."""

    name = "memory"
    description = "Save lasting facts and preferences for later conversations."
    effect = Effect.IDEMPOTENT
    arguments: type[Struct] = MemoryArguments

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def proposed_action(self, arguments: MemoryArguments) -> ProposedAction:
        """Describe the change."""
        return ProposedAction(
            "other", f"{arguments.action} in {FILES[arguments.book]}: {arguments.text or arguments.old}"
        )

    async def run(self, arguments: MemoryArguments, call: Call) -> ToolOutput:
        """Change one entry and report how full the file is."""
        book = notebook_for(Viewer(call.owner, call.audience), arguments.book, self._folder)
        return ToolOutput(await asyncio.to_thread(_change, book, arguments))


def _change(book: Notebook, arguments: MemoryArguments) -> str:
    match arguments.action:
        case "add":
            return book.add(arguments.text)
        case "replace":
            return book.replace(arguments.old, arguments.text)
        case "remove":
            return book.remove(arguments.old or arguments.text)

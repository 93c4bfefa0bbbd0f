"""The memory tool."""

import asyncio
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.contracts.memory import MemoryKind, MemorySource
from talaria.contracts.stores.sessions import Viewer
from talaria.contracts.tool import Call, Effect, ProposedAction, ToolOutput
from talaria.tools.memory.notebook import NAMES, Memories, Notebook


class MemoryArguments(Struct, frozen=True):
    """An entry to add, replace or remove."""

    action: Literal["add", "replace", "remove"]
    text: Annotated[str, Meta(description="New entry, one paragraph")] = ""
    old: Annotated[str, Meta(description="Part of the entry to change or remove")] = ""
    book: Annotated[MemoryKind, Meta(description="user: about the person")] = "memory"


class Memory:
    """Entries for each person and each group: notes on the work, and facts about the person."""

    name = "memory"
    description = "Save lasting facts and preferences for later conversations."
    effect = Effect.IDEMPOTENT
    arguments: type[Struct] = MemoryArguments

    def __init__(self, memories: Memories) -> None:
        self._memories = memories

    def proposed_action(self, arguments: MemoryArguments) -> ProposedAction:
        """Describe the change."""
        return ProposedAction(
            "other", f"{arguments.action} in {NAMES[arguments.book]}: {arguments.text or arguments.old}"
        )

    async def run(self, arguments: MemoryArguments, call: Call) -> ToolOutput:
        """Change one entry and report how full the memory is."""
        source = MemorySource(surface=call.context.source, session=str(call.session_id))
        book = self._memories.notebook(Viewer(call.owner, call.audience), arguments.book, source)
        return ToolOutput(await asyncio.to_thread(_change, book, arguments))


def _change(book: Notebook, arguments: MemoryArguments) -> str:
    match arguments.action:
        case "add":
            return book.add(arguments.text)
        case "replace":
            return book.replace(arguments.old, arguments.text)
        case "remove":
            return book.remove(arguments.old or arguments.text)

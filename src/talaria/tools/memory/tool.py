"""The tool with which the agent remembers, and what it remembers as a new conversation begins."""

import asyncio
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.contracts.tool import Call, Deed, Effect, ToolOutput
from talaria.tools.memory.notebook import FILES, Book, Notebook, folder_of

_TITLES: dict[Book, str] = {"memory": "What you noted", "user": "What you know about the person"}


class MemoryArguments(Struct, frozen=True):
    """What to remember or forget."""

    action: Literal["add", "replace", "remove"]
    text: Annotated[str, Meta(description="New entry, one paragraph")] = ""
    old: Annotated[str, Meta(description="Part of the entry to change")] = ""
    book: Annotated[Book, Meta(description="user: about the person")] = "memory"


class Memory:
    """Two files for each owner: notes on the work, and what is known of the person."""

    name = "memory"
    description = "Keep lasting facts and wishes for later conversations."
    effect = Effect.IDEMPOTENT
    arguments: type[Struct] = MemoryArguments

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def deed(self, arguments: MemoryArguments) -> Deed:
        """Say what changes in which file."""
        return Deed("other", f"{arguments.action} in {FILES[arguments.book]}: {arguments.text or arguments.old}")

    async def run(self, arguments: MemoryArguments, call: Call) -> ToolOutput:
        """Change one entry and say how full the file is."""
        book = Notebook(folder_of(call.owner, self._folder), arguments.book)
        return ToolOutput(await asyncio.to_thread(_change, book, arguments))


def snapshot(folder: Path, owner: str = "") -> str:
    """Return both files of an owner for a system prompt; nothing if nothing is remembered."""
    own = folder_of(owner, folder)
    books = ((book, Notebook(own, book).entries()) for book in FILES)
    return "\n\n".join(f"## {_TITLES[book]}\n" + "\n§\n".join(entries) for book, entries in books if entries)


def _change(book: Notebook, arguments: MemoryArguments) -> str:
    match arguments.action:
        case "add":
            return book.add(arguments.text)
        case "replace":
            return book.replace(arguments.old, arguments.text)
        case "remove":
            return book.remove(arguments.old or arguments.text)

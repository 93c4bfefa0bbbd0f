"""Albums that Telegram hands over part by part: each part is kept before the next one is asked for."""

from typing import Protocol

import msgspec
from telegram import Update

from talaria.contracts.store import Store
from talaria.platforms.telegram.calls import read_raw
from talaria.platforms.telegram.incoming import album_of

_decode = msgspec.json.Decoder(dict[str, object]).decode


class Shelf(Protocol):
    """Keeps the parts of an album until all of it was taken; `app` has one in the store."""

    async def put(self, number: int, part: str) -> None:
        """Keep one durably, under the number of its update."""

    async def parts(self) -> list[str]:
        """Return what is kept, in the order of the numbers."""

    async def clear(self, numbers: list[int]) -> None:
        """Forget these."""


class MemoryShelf:
    """Implements `Shelf` for a bot that has no store."""

    def __init__(self) -> None:
        self._parts: dict[int, str] = {}

    async def put(self, number: int, part: str) -> None:
        """Keep one as long as the process lives."""
        self._parts[number] = part

    async def parts(self) -> list[str]:
        """Return what is kept, in the order of the numbers."""
        return [part for _, part in sorted(self._parts.items())]

    async def clear(self, numbers: list[int]) -> None:
        """Forget these."""
        for number in numbers:
            self._parts.pop(number, None)


class StoreShelf:
    """Implements `Shelf` in the store."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._prefix = f"album:{name}:"

    async def put(self, number: int, part: str) -> None:
        """Keep one durably, under the number of its update."""
        await self._store.write(lambda tx: tx.state.put(self._key(number), part))

    async def parts(self) -> list[str]:
        """Return what is kept, in the order of the numbers."""
        entries = await self._store.read(lambda tx: tx.state.with_prefix(self._prefix))
        return [entry.value for entry in entries]

    async def clear(self, numbers: list[int]) -> None:
        """Forget these."""
        await self._store.write(lambda tx: [tx.state.delete(self._key(number)) for number in numbers])

    def _key(self, number: int) -> str:
        return f"{self._prefix}{number:020}"


class Album:
    """The album that is being handed over; ``parts`` are its updates so far, also those of before a restart."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self.parts: list[Update] = []

    async def load(self) -> None:
        """Find what was kept and not taken."""
        kept = [read_raw(_decode(part)) for part in await self._shelf.parts()]
        self.parts = [part for part in kept if part is not None]

    def goes_on(self, update: Update) -> bool:
        """Tell whether an update is a part of it, or of one that may begin."""
        return bool(album_of(update)) and (not self.parts or album_of(update) == album_of(self.parts[-1]))

    async def add(self, update: Update) -> None:
        """Keep a part; one that is there already stays as it is."""
        await self._shelf.put(update.update_id, update.to_json())
        if update.update_id not in {part.update_id for part in self.parts}:
            self.parts.append(update)

    async def taken(self, up_to: int) -> None:
        """Forget the parts up to an update."""
        numbers = [part.update_id for part in self.parts if part.update_id <= up_to]
        self.parts = [part for part in self.parts if part.update_id > up_to]
        if numbers:
            await self._shelf.clear(numbers)

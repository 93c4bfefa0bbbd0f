"""Albums that Telegram hands over part by part: each part is kept before the next one is asked for."""

from datetime import timedelta
from typing import Protocol

import msgspec
from telegram import Update

from talaria.contracts.store import Store
from talaria.platforms.counter import Handed
from talaria.platforms.telegram.calls import read_raw
from talaria.platforms.telegram.incoming import album_of
from talaria.platforms.telegram.webhook import Hook

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


class Receiving:
    """The updates that a webhook brings, an album whole; `confirm` says up to which they were taken.

    Telegram hands over the next part of an album when it knows that it got rid of the one before: so that is kept
    here first, and found again by the next process if this one is killed.
    """

    def __init__(self, hook: Hook, shelf: Shelf, pause: timedelta) -> None:
        self._hook = hook
        self._shelf = shelf
        self._pause = pause
        self._parts: list[Update] = []
        self._handed: Handed[Update] | None = None

    async def begin(self) -> None:
        """Find what was kept and not taken."""
        kept = [read_raw(_decode(part)) for part in await self._shelf.parts()]
        self._parts = [part for part in kept if part is not None]

    async def following(self) -> list[Update]:
        """Return what comes next: an album to which nothing more is added for a while, or one update."""
        while True:
            if self._handed is None:
                self._handed = await self._hook.following(self._pause if self._parts else None)
            handed = self._handed
            if handed is not None and self._goes_on(handed.item):
                await self._keep(handed.item)
                handed.settle(taken=True)
                self._handed = None
            elif self._parts:
                return list(self._parts)
            elif handed is not None:
                return [handed.item]

    async def confirm(self, update_id: int) -> None:
        """Note that everything up to this one was taken."""
        taken = [part.update_id for part in self._parts if part.update_id <= update_id]
        if taken:
            self._parts = [part for part in self._parts if part.update_id > update_id]
            await self._shelf.clear(taken)
        elif self._handed is not None:
            self._handed.settle(taken=True)
            self._handed = None

    def part(self) -> None:
        """Let Telegram keep what was handed over and not taken."""
        if self._handed is not None:
            self._handed.settle(taken=False)

    def _goes_on(self, update: Update) -> bool:
        """Tell whether an update is a part of the album, or of one that may begin."""
        return bool(album_of(update)) and (not self._parts or album_of(update) == album_of(self._parts[-1]))

    async def _keep(self, update: Update) -> None:
        await self._shelf.put(update.update_id, update.to_json())
        if update.update_id not in {part.update_id for part in self._parts}:
            self._parts.append(update)

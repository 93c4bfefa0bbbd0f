"""Albums, which Telegram delivers part by part: each part is stored before the next is requested."""

from datetime import timedelta
from typing import Protocol

import msgspec
from telegram import Update

from talaria.contracts.store import Store
from talaria.contracts.values import NamedValue
from talaria.platforms.push_receiver import PushedItem
from talaria.platforms.telegram.client import decode_update
from talaria.platforms.telegram.incoming import album_key
from talaria.platforms.telegram.webhook import WebhookServer

ALBUM_PART = NamedValue("telegram_album_part", str)  # an update as JSON, by account and number
_decode = msgspec.json.Decoder(dict[str, object]).decode


class AlbumStore(Protocol):
    """A store for the parts of an album until all of it was taken."""

    async def put(self, number: int, part: str) -> None:
        """Save one durably, under its update number."""

    async def parts(self) -> list[str]:
        """Return the stored parts, by number."""

    async def clear(self, numbers: list[int]) -> None:
        """Delete these."""


class MemoryAlbumStore:
    """An `AlbumStore` in memory."""

    def __init__(self) -> None:
        self._parts: dict[int, str] = {}

    async def put(self, number: int, part: str) -> None:
        """Save one in memory."""
        self._parts[number] = part

    async def parts(self) -> list[str]:
        """Return the stored parts, by number."""
        return [part for _, part in sorted(self._parts.items())]

    async def clear(self, numbers: list[int]) -> None:
        """Delete these."""
        for number in numbers:
            self._parts.pop(number, None)


class DurableAlbumStore:
    """An `AlbumStore` in the database."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._prefix = f"{name}:"

    async def put(self, number: int, part: str) -> None:
        """Save one durably, under its update number."""
        await self._store.write(lambda tx: ALBUM_PART.write(tx, self._key(number), part))

    async def parts(self) -> list[str]:
        """Return the stored parts, by number."""
        parts = await self._store.read(lambda tx: ALBUM_PART.items(tx, self._prefix))
        return list(parts.values())

    async def clear(self, numbers: list[int]) -> None:
        """Delete these."""
        await self._store.write(lambda tx: [ALBUM_PART.delete(tx, self._key(number)) for number in numbers])

    def _key(self, number: int) -> str:
        return f"{self._prefix}{number:020}"


class AlbumCollector:
    """The updates of a webhook, with albums complete; `confirm` says up to which they were taken.

    Telegram sends the next part of an album only after the one before was accepted: it is stored here first, and found
    by the next process after a crash.
    """

    def __init__(self, server: WebhookServer, state_store: AlbumStore, pause: timedelta) -> None:
        self._server = server
        self._state_store = state_store
        self._pause = pause
        self._parts: list[Update] = []
        self._pushed: PushedItem[Update] | None = None

    async def start(self) -> None:
        """Load the stored parts that were not taken."""
        stored = [decode_update(_decode(part)) for part in await self._state_store.parts()]
        self._parts = [part for part in stored if part is not None]

    async def next_item(self) -> list[Update]:
        """Return the next item: an album without new parts for a while, or one update."""
        while True:
            if self._pushed is None:
                self._pushed = await self._server.next_item(self._pause if self._parts else None)
            pushed = self._pushed
            if pushed is not None and self._continues_album(pushed.item):
                await self._store_part(pushed.item)
                pushed.acknowledge(accepted=True)
                self._pushed = None
            elif self._parts:
                return list(self._parts)
            elif pushed is not None:
                return [pushed.item]

    async def confirm(self, update_id: int) -> None:
        """Record that everything up to this one was taken."""
        accepted = [part.update_id for part in self._parts if part.update_id <= update_id]
        if accepted:
            self._parts = [part for part in self._parts if part.update_id > update_id]
            await self._state_store.clear(accepted)
        elif self._pushed is not None:
            self._pushed.acknowledge(accepted=True)
            self._pushed = None

    def part(self) -> None:
        """Leave updates that were not taken to Telegram."""
        if self._pushed is not None:
            self._pushed.acknowledge(accepted=False)

    def _continues_album(self, update: Update) -> bool:
        """Return whether an update is a part of the album, or of one that may start."""
        return bool(album_key(update)) and (not self._parts or album_key(update) == album_key(self._parts[-1]))

    async def _store_part(self, update: Update) -> None:
        await self._state_store.put(update.update_id, update.to_json())
        if update.update_id not in {part.update_id for part in self._parts}:
            self._parts.append(update)

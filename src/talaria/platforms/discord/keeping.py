"""What is kept of a session with Discord, so that it can be gone on with and caught up with."""

from typing import Protocol

import msgspec
from msgspec import Struct

from talaria.contracts.store import Store

_KNOWN_PLACES = 50


class Login(Struct, frozen=True):
    """A session: where it is gone on with, and the number of the last event that was taken."""

    url: str
    session: str = ""
    sequence: int = 0


class Progress(Struct, frozen=True, omit_defaults=True):
    """How far everything was read: the session, and the last message of each place where we talk."""

    login: Login | None = None
    seen: dict[str, str] = {}

    def reading(self, channel: str, message: str) -> dict[str, str]:
        """Return the last messages with another one; the places where nothing was said for longest are forgotten."""
        kept = {place: last for place, last in self.seen.items() if place != channel}
        newest = max(self.seen.get(channel, "0"), message, key=int)
        return dict([*kept.items(), (channel, newest)][-_KNOWN_PLACES:])


class Shelf(Protocol):
    """Where something small is kept."""

    async def load(self) -> Progress:
        """Return what was saved last."""

    async def save(self, progress: Progress) -> None:
        """Keep this in place of what was there."""


class MemoryShelf:
    """Keeps it as long as the process lives."""

    def __init__(self) -> None:
        self._kept = Progress()

    async def load(self) -> Progress:
        """Return what was saved last."""
        return self._kept

    async def save(self, progress: Progress) -> None:
        """Keep this in place of what was there."""
        self._kept = progress


class StoreShelf:
    """Keeps it in the store, for whichever process is next."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._key = f"progress:{name}"

    async def load(self) -> Progress:
        """Return what was saved last; nothing where that cannot be read any more."""
        entry = await self._store.read(lambda tx: tx.state.get(self._key))
        try:
            return msgspec.json.decode(entry.value, type=Progress) if entry else Progress()
        except msgspec.DecodeError:
            return Progress()

    async def save(self, progress: Progress) -> None:
        """Keep this durably in place of what was there."""
        text = msgspec.json.encode(progress).decode()
        await self._store.write(lambda tx: tx.state.put(self._key, text))

"""The stored state of a Discord session, for resuming and catching up."""

from typing import Protocol

from msgspec import Struct

from talaria.contracts.store import Store
from talaria.contracts.values import NamedValue
from talaria.core.errors import UnreadableValue

_MOST_CHANNELS = 50


class GatewaySession(Struct, frozen=True):
    """A session: its resume URL, and the number of the last event taken."""

    url: str
    session: str = ""
    sequence: int = 0


class ReadProgress(Struct, frozen=True, omit_defaults=True):
    """All read positions: the session, and the last message of each channel in which we talk."""

    login: GatewaySession | None = None
    seen: dict[str, str] = {}

    def with_seen(self, channel: str, message: str) -> dict[str, str]:
        """Return the positions with another message; the least recently used channels are dropped."""
        others = {channel_id: last for channel_id, last in self.seen.items() if channel_id != channel}
        newest = max(self.seen.get(channel, "0"), message, key=int)
        return dict([*others.items(), (channel, newest)][-_MOST_CHANNELS:])


READ_PROGRESS = NamedValue("discord_progress", ReadProgress)  # by account


class ProgressStore(Protocol):
    """A store for one small value."""

    async def load(self) -> ReadProgress:
        """Return what was saved last."""

    async def save(self, progress: ReadProgress) -> None:
        """Replace the stored value."""


class MemoryProgressStore:
    """A store in memory."""

    def __init__(self) -> None:
        self._progress = ReadProgress()

    async def load(self) -> ReadProgress:
        """Return what was saved last."""
        return self._progress

    async def save(self, progress: ReadProgress) -> None:
        """Replace the stored value."""
        self._progress = progress


class DurableProgressStore:
    """A store in the database, shared with later processes."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    async def load(self) -> ReadProgress:
        """Return the last value; nothing if it can't be read any more."""
        try:
            return await self._store.read(lambda tx: READ_PROGRESS.get(tx, self._name)) or ReadProgress()
        except UnreadableValue:
            return ReadProgress()

    async def save(self, progress: ReadProgress) -> None:
        """Replace the stored value durably."""
        await self._store.write(lambda tx: READ_PROGRESS.write(tx, self._name, progress))

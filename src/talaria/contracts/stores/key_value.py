"""Small values by key: goals, home chats, approvals and others without a table."""

from typing import Protocol

from msgspec import Struct


class KeyValueEntry(Struct, frozen=True):
    """A value and how often it has been written."""

    key: str
    value: str
    version: int


class KeyValues(Protocol):
    """Keys like ``goal:<session id>``, each with a text value."""

    def get(self, key: str) -> KeyValueEntry | None:
        """Return the entry of a key."""

    def put(self, key: str, value: str) -> int:
        """Write a value and return its new version."""

    def replace(self, key: str, value: str, *, version: int) -> bool:
        """Write only if the entry still has this version (0: is not there); tell whether it was."""

    def delete(self, key: str) -> bool:
        """Forget a key."""

    def with_prefix(self, prefix: str) -> list[KeyValueEntry]:
        """Return the entries whose keys start with this prefix, sorted by key."""

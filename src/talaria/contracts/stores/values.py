"""Rows of stored values; `talaria.contracts.values` gives them names and types, and is their only user."""

from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

from talaria.core.ids import SessionId


class ValueRow(Struct, frozen=True):
    """An encoded value and how often it has been written."""

    value: str
    version: int


class SessionValues(Protocol):
    """Values of sessions, each under a name and an item of that name; they are deleted with their session."""

    def get(self, session_id: SessionId, name: str, item: str) -> ValueRow | None:
        """Return a value, or ``None``."""

    def put(self, session_id: SessionId, name: str, item: str, value: str) -> int:
        """Write a value and return its new version, starting at 1."""

    def replace(self, session_id: SessionId, name: str, item: str, value: str, *, version: int) -> bool:
        """Write only if the value still has this version (0: does not exist); return whether it was written."""

    def delete(self, session_id: SessionId, name: str, item: str) -> bool:
        """Delete a value; ``False`` if it does not exist."""

    def copy(self, source: SessionId, target: SessionId, names: Collection[str]) -> None:
        """Give a session all values that another has under these names."""

    def of_session(self, session_id: SessionId, name: str) -> list[tuple[str, ValueRow]]:
        """Return the values of a session under a name with their items, ordered by item."""

    def with_item(self, name: str, item: str) -> list[tuple[SessionId, ValueRow]]:
        """Return the values of all sessions under a name and an item, ordered by session."""

    def of_all(self, name: str) -> list[tuple[SessionId, str, ValueRow]]:
        """Return the values of all sessions under a name, ordered by item and session."""


class NamedValues(Protocol):
    """Values that belong to no session, each under a key in a space of its own."""

    def get(self, space: str, key: str) -> ValueRow | None:
        """Return a value, or ``None``."""

    def put(self, space: str, key: str, value: str) -> int:
        """Write a value and return its new version, starting at 1."""

    def replace(self, space: str, key: str, value: str, *, version: int) -> bool:
        """Write only if the value still has this version (0: does not exist); return whether it was written."""

    def delete(self, space: str, key: str) -> bool:
        """Delete a value; ``False`` if it does not exist."""

    def find(self, space: str, prefix: str) -> list[tuple[str, ValueRow]]:
        """Return the values of a space whose keys start with ``prefix``, ordered by key."""

"""API keys: named, with scopes, stored as digests."""

from datetime import datetime
from typing import Protocol

from msgspec import Struct


class StoredApiKey(Struct, frozen=True, kw_only=True):
    """An API key: the digest, not the key itself."""

    name: str
    scopes: tuple[str, ...]
    digest: str
    created_at: datetime


class ApiKeys(Protocol):
    """The API keys, by name."""

    def add(self, key: StoredApiKey) -> bool:
        """Add a key; ``False`` if its name is taken."""

    def all(self) -> list[StoredApiKey]:
        """Return the keys, ordered by name."""

    def delete(self, name: str) -> bool:
        """Delete a key; ``False`` if there is none with this name."""

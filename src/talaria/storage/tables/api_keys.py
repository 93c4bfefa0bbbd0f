"""API keys by name."""

from talaria.contracts.stores.api_keys import StoredApiKey
from talaria.storage.tables.sql import Sql, from_stamp, to_stamp


class ApiKeysTable:
    """SQL implementation of `ApiKeys`; scopes are stored as words."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def add(self, key: StoredApiKey) -> bool:
        """Add a key; ``False`` if its name is taken."""
        added = self._sql.count(
            "INSERT INTO api_keys (name, scopes, digest, created_at) VALUES (?, ?, ?, ?) ON CONFLICT (name) DO NOTHING",
            (key.name, " ".join(key.scopes), key.digest, to_stamp(key.created_at)),
        )
        return added > 0

    def all(self) -> list[StoredApiKey]:
        """Return the keys, ordered by name."""
        rows = self._sql.rows("SELECT name, scopes, digest, created_at FROM api_keys")
        return [
            StoredApiKey(name=name, scopes=tuple(scopes.split()), digest=digest, created_at=from_stamp(created_at))
            for name, scopes, digest, created_at in sorted(rows)
        ]

    def delete(self, name: str) -> bool:
        """Delete a key; ``False`` if there is none with this name."""
        return self._sql.count("DELETE FROM api_keys WHERE name = ?", (name,)) > 0

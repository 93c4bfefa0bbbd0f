"""Bindings of places to conversations."""

import msgspec

from talaria.contracts.stores.bindings import Binding
from talaria.core.addresses import Address, audience_of
from talaria.core.ids import SessionId
from talaria.storage.sql import Row, Sql, begins, decode_stored, from_stamp

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Address).decode


class BindingsTable:
    """Implements `Bindings`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def bind(self, key: str, session_id: SessionId, address: Address) -> Binding | None:
        """Join a place to a conversation and return the binding that this replaces."""
        row = self._sql.row(
            f"SELECT key, session_id, address, bound_at FROM bindings WHERE key = ?{self._sql.locked}", (key,)
        )
        self._sql.run(
            "INSERT INTO bindings (key, session_id, address, bound_at) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE"
            " SET session_id = excluded.session_id, address = excluded.address, bound_at = excluded.bound_at",
            (key, session_id, _encode(address).decode(), self._sql.now),
        )
        self._tell_audience(session_id, address)
        return _binding(row) if row else None

    def get(self, key: str) -> Binding | None:
        """Return the binding of a place."""
        row = self._sql.row("SELECT key, session_id, address, bound_at FROM bindings WHERE key = ?", (key,))
        return _binding(row) if row else None

    def of_session(self, session_id: SessionId) -> list[Binding]:
        """Return every place of a conversation, last bound first."""
        rows = self._sql.rows(
            "SELECT key, session_id, address, bound_at FROM bindings WHERE session_id = ?", (session_id,)
        )
        return _last_bound_first(rows)

    def under(self, prefix: str) -> list[Binding]:
        """Return every place whose key begins so, last bound first."""
        condition, values = begins(self._sql, "key", prefix)
        rows = self._sql.rows(f"SELECT key, session_id, address, bound_at FROM bindings WHERE {condition}", values)
        return _last_bound_first(rows)

    def unbind(self, key: str) -> bool:
        """Part a place from its conversation."""
        return self._sql.count("DELETE FROM bindings WHERE key = ?", (key,)) > 0

    def _tell_audience(self, session_id: SessionId, address: Address) -> None:
        """Give a conversation the audience of its place; one that is in two has that which reads along in either."""
        audience = audience_of(address) or next(
            filter(None, (audience_of(binding.address) for binding in self.of_session(session_id))), ""
        )
        self._sql.run(
            "UPDATE sessions SET audience = ? WHERE id = ? AND audience <> ?", (audience, session_id, audience)
        )


def _last_bound_first(rows: list[Row]) -> list[Binding]:
    """Return the bindings in order: the engine would set up a sort even for none at all."""
    return [_binding(row) for row in sorted(rows, key=lambda row: (-row[3], row[0]))]


def _binding(row: Row) -> Binding:
    key, session_id, address, bound_at = row
    return Binding(key, session_id, decode_stored(_decode, address), from_stamp(bound_at))

"""Bindings of session keys to sessions and addresses."""

import msgspec

from talaria.contracts.stores.bindings import Binding
from talaria.core.addresses import Address, audience_of
from talaria.core.ids import SessionId
from talaria.storage.tables.sql import Row, Sql, build_prefix_condition, decode_stored, from_stamp

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Address).decode


class BindingsTable:
    """SQL implementation of `Bindings`."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql

    def bind(self, key: str, session_id: SessionId, address: Address) -> Binding | None:
        """Bind a key to a session and return the replaced binding, if any.

        Also updates the audience of the session.
        """
        row = self._sql.row(
            f"SELECT key, session_id, address, bound_at FROM bindings WHERE key = ?{self._sql.locked}", (key,)
        )
        self._sql.run(
            "INSERT INTO bindings (key, session_id, address, bound_at) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE"
            " SET session_id = excluded.session_id, address = excluded.address, bound_at = excluded.bound_at",
            (key, session_id, _encode(address).decode(), self._sql.now),
        )
        self._update_audience(session_id, address)
        return _to_binding(row) if row else None

    def get(self, key: str) -> Binding | None:
        """Return the binding of a key, or ``None``."""
        row = self._sql.row("SELECT key, session_id, address, bound_at FROM bindings WHERE key = ?", (key,))
        return _to_binding(row) if row else None

    def of_session(self, session_id: SessionId) -> list[Binding]:
        """Return all bindings of a session, most recently bound first."""
        rows = self._sql.rows(
            "SELECT key, session_id, address, bound_at FROM bindings WHERE session_id = ?", (session_id,)
        )
        return _sort_newest_first(rows)

    def under(self, prefix: str) -> list[Binding]:
        """Return all bindings whose key starts with ``prefix``, most recently bound first."""
        condition, values = build_prefix_condition(self._sql, "key", prefix)
        rows = self._sql.rows(f"SELECT key, session_id, address, bound_at FROM bindings WHERE {condition}", values)
        return _sort_newest_first(rows)

    def unbind(self, key: str) -> bool:
        """Remove a binding; ``False`` if there was none."""
        return self._sql.count("DELETE FROM bindings WHERE key = ?", (key,)) > 0

    def _update_audience(self, session_id: SessionId, address: Address) -> None:
        """Set the session's audience from its addresses.

        The new address decides; if it has no audience, the most recently bound address that has one decides.
        """
        audience = audience_of(address) or next(
            filter(None, (audience_of(binding.address) for binding in self.of_session(session_id))), ""
        )
        self._sql.run(
            "UPDATE sessions SET audience = ? WHERE id = ? AND audience <> ?", (audience, session_id, audience)
        )


def _sort_newest_first(rows: list[Row]) -> list[Binding]:
    """Return the bindings, most recently bound first.

    Sorted here because the engine would set up a sort even for an empty result.
    """
    return [_to_binding(row) for row in sorted(rows, key=lambda row: (-row[3], row[0]))]


def _to_binding(row: Row) -> Binding:
    key, session_id, address, bound_at = row
    return Binding(key, session_id, decode_stored(_decode, address), from_stamp(bound_at))

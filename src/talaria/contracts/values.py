"""Typed values in the store: of one session, or under a key.

Each value is declared once, as a constant of the module that owns it, with a name and a type. Text is stored as it is,
every other type as JSON. This module is the only user of the two tables, and every part may use it: adapters too,
which know nothing but `contracts` and `core`.
"""

from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar, overload

import msgspec
from msgspec import Struct

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.values import ValueRow
from talaria.core.errors import UnreadableValue
from talaria.core.ids import SessionId

T = TypeVar("T")
SINGLE = ""  # the key of a named value of which there is only one

_encode_json = msgspec.json.Encoder().encode


class Stored(Struct, Generic[T], frozen=True):
    """A value as it was read, with the version that detects a concurrent change; 0 if there is none."""

    value: T | None = None
    version: int = 0


class _Codec(Generic[T]):
    """Name of a value and conversion between its type and stored text."""

    @overload
    def __init__(self, name: str, stored_type: type[T]) -> None: ...

    @overload
    def __init__(self, name: str, stored_type: Any) -> None: ...

    def __init__(self, name: str, stored_type: Any) -> None:
        self.name = name
        self.type = stored_type
        self._decode_json: Callable[[str], T] | None = None

    def _encode(self, value: T) -> str:
        return value if isinstance(value, str) and self.type is str else _encode_json(value).decode()

    def _decode(self, row: ValueRow, key: str) -> T:
        if self.type is str:
            return row.value  # type: ignore[return-value] # T is str
        if self._decode_json is None:  # built with the first value, because most processes use few of them
            self._decode_json = msgspec.json.Decoder(self.type).decode
        try:
            return self._decode_json(row.value)
        except msgspec.DecodeError as error:
            name = f"{self.name}:{key}" if key else self.name
            raise UnreadableValue(f"The stored value {name} can't be read: {error}") from error


class SessionValue(_Codec[T]):
    """A value that a session may have, and that is deleted with it; written ``name:<session id>`` in texts.

    A value that a session may have several of has an ``item``, for example the id of a run.
    """

    def get(self, tx: Transaction, session_id: SessionId, item: str = "") -> T | None:
        """Return the value, or ``None``; raises `UnreadableValue`."""
        return self.read(tx, session_id, item).value

    def read(self, tx: Transaction, session_id: SessionId, item: str = "") -> Stored[T]:
        """Return the value with its version, for a later `replace`; raises `UnreadableValue`."""
        row = self._get_row(tx, session_id, item)
        return Stored(self._decode(row, session_id), row.version) if row else Stored()

    def version(self, tx: Transaction, session_id: SessionId, item: str = "") -> int:
        """Return how often the value has been written; 0 if there is none."""
        row = self._get_row(tx, session_id, item)
        return row.version if row else 0

    def write(self, tx: Transaction, session_id: SessionId, value: T, item: str = "") -> int:
        """Write the value, whatever it was, and return its new version."""
        return tx.session_values.put(session_id, self.name, item, self._encode(value))

    def replace(self, tx: Transaction, session_id: SessionId, value: T, *, version: int, item: str = "") -> bool:
        """Write only if it still has this version (0: does not exist); return whether it was written."""
        return tx.session_values.replace(session_id, self.name, item, self._encode(value), version=version)

    def delete(self, tx: Transaction, session_id: SessionId, item: str = "") -> bool:
        """Delete the value; ``False`` if there is none."""
        return tx.session_values.delete(session_id, self.name, item)

    def items(self, tx: Transaction, session_id: SessionId) -> dict[str, T]:
        """Return the values of a session by item, ordered by item; raises `UnreadableValue`."""
        found = tx.session_values.of_session(session_id, self.name)
        return {item: self._decode(row, session_id) for item, row in found}

    def with_item(self, tx: Transaction, item: str) -> list[tuple[SessionId, T]]:
        """Return the sessions that have this item, each with its value; raises `UnreadableValue`."""
        found = tx.session_values.with_item(self.name, item)
        return [(session_id, self._decode(row, session_id)) for session_id, row in found]

    def of_all(self, tx: Transaction) -> list[tuple[SessionId, str, T]]:
        """Return session, item and value of all sessions, ordered by item; raises `UnreadableValue`."""
        found = tx.session_values.of_all(self.name)
        return [(session_id, item, self._decode(row, session_id)) for session_id, item, row in found]

    def sessions(self, tx: Transaction) -> list[SessionId]:
        """Return the sessions that have the value."""
        return list(dict.fromkeys(session_id for session_id, _, _ in tx.session_values.of_all(self.name)))

    def copy(self, tx: Transaction, source: SessionId, target: SessionId) -> None:
        """Give a session the value of another, with all its items, if that has any."""
        tx.session_values.copy(source, target, (self.name,))

    def _get_row(self, tx: Transaction, session_id: SessionId, item: str) -> ValueRow | None:
        return tx.session_values.get(session_id, self.name, item)


def copy_values(tx: Transaction, source: SessionId, target: SessionId, names: Collection[str]) -> None:
    """Give a session the values that another has under these names, whichever parts own them."""
    tx.session_values.copy(source, target, names)


class NamedValue(_Codec[T]):
    """A value that belongs to no session, under a key; `SINGLE` if there is only one."""

    def get(self, tx: Transaction, key: str) -> T | None:
        """Return the value, or ``None``; raises `UnreadableValue`."""
        return self.read(tx, key).value

    def read(self, tx: Transaction, key: str) -> Stored[T]:
        """Return the value with its version, for a later `replace`; raises `UnreadableValue`."""
        row = tx.named_values.get(self.name, key)
        return Stored(self._decode(row, key), row.version) if row else Stored()

    def version(self, tx: Transaction, key: str) -> int:
        """Return how often the value has been written; 0 if there is none."""
        row = tx.named_values.get(self.name, key)
        return row.version if row else 0

    def write(self, tx: Transaction, key: str, value: T) -> int:
        """Write the value, whatever it was, and return its new version."""
        return tx.named_values.put(self.name, key, self._encode(value))

    def replace(self, tx: Transaction, key: str, value: T, *, version: int) -> bool:
        """Write only if it still has this version (0: does not exist); return whether it was written."""
        return tx.named_values.replace(self.name, key, self._encode(value), version=version)

    def delete(self, tx: Transaction, key: str) -> bool:
        """Delete the value; ``False`` if there is none."""
        return tx.named_values.delete(self.name, key)

    def items(self, tx: Transaction, prefix: str = "") -> dict[str, T]:
        """Return the values whose keys start with ``prefix``, ordered by key; raises `UnreadableValue`."""
        return {key: self._decode(row, key) for key, row in tx.named_values.find(self.name, prefix)}

    def keys(self, tx: Transaction, prefix: str = "") -> list[str]:
        """Return the keys that start with ``prefix``, in order."""
        return [key for key, _ in tx.named_values.find(self.name, prefix)]


class DurableValue:
    """A named text with its key, for an adapter that stores a position or the like."""

    def __init__(self, store: Store, value: NamedValue[str], key: str) -> None:
        self._store = store
        self._value = value
        self._key = key

    async def load(self) -> str:
        """Return the last text; empty the first time."""
        return await self._store.read(lambda tx: self._value.get(tx, self._key)) or ""

    async def save(self, text: str) -> None:
        """Replace the text durably."""
        await self._store.write(lambda tx: self._value.write(tx, self._key, text))

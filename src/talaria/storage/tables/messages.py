"""Transcripts, kept together by conversation.

A message's id is ``session number * 2**24 + seq``. Rows with neighbouring ids lie on the same pages, so a
transcript is read in one sweep, and the id alone says where a message stands.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from talaria.contracts.stores.messages import StoredMessage
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Part
from talaria.storage.sql import Row, Sql, decode_stored, from_stamp, to_stamp

SEQ_BITS = 24
_COLUMNS = "id, at, role, body, platform_message_id"


class Body(Struct, frozen=True, omit_defaults=True):
    """What a message holds beside its columns."""

    parts: tuple[Part, ...]
    author: str = ""
    model: str = ""
    tokens: int | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Body).decode


class Arrivals(Protocol):
    """An engine's list of messages in the order of their storing, from which it searches."""

    def note(self, message_id: int, text: str) -> int:
        """Take a message in and return its number."""

    def note_copy(self, message_id: int, copy_id: int) -> int:
        """Take in a copy of a message that is stored already and return its number."""

    def forget(self, first_id: int, last_id: int) -> None:
        """Drop the messages in a range of ids, before they are deleted."""


class MessagesTable:
    """Implements `Messages`."""

    def __init__(self, sql: Sql, arrivals: Arrivals) -> None:
        self._sql = sql
        self._arrivals = arrivals

    def append(self, session_id: SessionId, messages: Sequence[Message]) -> int:
        """Add messages at the end and return the ``seq`` of the last; raises `NotFound`."""
        found = self._sql.row(
            "UPDATE sessions SET last_seq = last_seq + ?, updated_at = ? WHERE id = ? RETURNING number, last_seq",
            (len(messages), self._sql.now, session_id),
        )
        if found is None:
            raise NotFound(f"There is no session {session_id}.")
        number, last = found
        first = (number << SEQ_BITS) + last - len(messages) + 1
        self._sql.run_many(
            "INSERT INTO messages (id, arrival, at, role, body, platform_message_id) VALUES (?, ?, ?, ?, ?, ?)",
            [
                (
                    message_id,
                    self._arrivals.note(message_id, message.text),
                    to_stamp(message.at),
                    message.role,
                    _encode(Body(message.parts, message.author, message.model, message.tokens)).decode(),
                    message.platform_message_id,
                )
                for message_id, message in enumerate(messages, first)
            ],
        )
        return int(last)

    def load(self, session_id: SessionId, *, after: int = 0, limit: int | None = None) -> list[StoredMessage]:
        """Return the transcript behind ``after``, oldest first, with the past that a branch shares."""
        found: list[StoredMessage] = []
        for number, first, last in self._stretches(session_id):
            if last > after and (limit is None or len(found) < limit):
                rows = self._sql.rows(
                    f"SELECT {_COLUMNS} FROM messages WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
                    (
                        (number << SEQ_BITS) + max(first - 1, after),
                        (number << SEQ_BITS) + last,
                        (1 << SEQ_BITS) if limit is None else limit - len(found),
                    ),
                )
                found += [_stored(session_id, row) for row in rows]
        return found

    def last(self, session_id: SessionId, count: int) -> list[StoredMessage]:
        """Return the newest ``count`` messages, oldest first."""
        stretches = self._stretches(session_id)
        return self.load(session_id, after=max(0, stretches[-1][2] - count)) if stretches else []

    def with_platform_id(self, session_id: SessionId, platform_message_id: str) -> StoredMessage | None:
        """Return the message that a network knows by this id."""
        for number, first, last in reversed(self._stretches(session_id)):
            row = self._sql.row(
                f"SELECT {_COLUMNS} FROM messages WHERE platform_message_id = ? AND id BETWEEN ? AND ?"
                " ORDER BY id DESC LIMIT 1",
                (platform_message_id, (number << SEQ_BITS) + first, (number << SEQ_BITS) + last),
            )
            if row:
                return _stored(session_id, row)
        return None

    def _stretches(self, session_id: SessionId) -> list[tuple[int, int, int]]:
        """Return (session number, first seq, last seq) of each ancestor's share of the transcript, oldest first."""
        stretches: list[tuple[int, int, int]] = []
        wanted: str | None = session_id
        upto: int | None = None
        while wanted is not None and upto != 0:
            row = self._sql.row("SELECT number, parent_id, parent_seq, last_seq FROM sessions WHERE id = ?", (wanted,))
            if row is None:
                break
            number, parent, shared, last = row
            stretches.insert(0, (number, shared + 1, last if upto is None else upto))
            wanted, upto = parent, shared if upto is None else min(shared, upto)
        return stretches


def _stored(session_id: SessionId, row: Row) -> StoredMessage:
    message_id, at, role, body_text, platform_message_id = row
    body = decode_stored(_decode, body_text)
    message = Message(
        role=role,
        parts=body.parts,
        at=from_stamp(at),
        author=body.author,
        model=body.model,
        tokens=body.tokens,
        platform_message_id=platform_message_id,
    )
    return StoredMessage(session_id, message_id & ((1 << SEQ_BITS) - 1), message)

"""Transcripts, clustered by session.

The id of a message is ``session number * 2**24 + seq``. Rows with neighbouring ids are on the same pages, so a
transcript is read sequentially, and the id alone gives the position of a message.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec
from msgspec import Struct

from talaria.contracts.stores.messages import StoredMessage
from talaria.core.errors import NotFound
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Part
from talaria.storage.tables.sql import Row, Sql, decode_stored, from_stamp, to_stamp

SEQ_BITS = 24
_COLUMNS = "id, at, role, body, platform_message_id"


class MessageBody(Struct, frozen=True, omit_defaults=True):
    """JSON-encoded part of a message that has no columns of its own."""

    parts: tuple[Part, ...]
    author: str = ""
    model: str = ""
    tokens: int | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(MessageBody).decode


class ArrivalLog(Protocol):
    """Engine-specific log of messages in the order in which they were stored; the source of the search index."""

    def note(self, message_id: int, text: str) -> int:
        """Add a message and return its arrival number."""

    def add_copy(self, message_id: int, copy_id: int) -> int:
        """Add a copy of a stored message and return the arrival number of the copy."""

    def forget(self, first_id: int, last_id: int) -> None:
        """Remove the messages in a range of ids; call before they are deleted."""


class MessagesTable:
    """SQL implementation of `Messages`."""

    def __init__(self, sql: Sql, arrivals: ArrivalLog) -> None:
        self._sql = sql
        self._arrivals = arrivals

    def append(self, session_id: SessionId, messages: Sequence[Message]) -> int:
        """Append messages and return the ``seq`` of the last; raises `NotFound` for an unknown session."""
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
                    _encode(MessageBody(message.parts, message.author, message.model, message.tokens)).decode(),
                    message.platform_message_id,
                )
                for message_id, message in enumerate(messages, first)
            ],
        )
        return int(last)

    def load(self, session_id: SessionId, *, after: int = 0, limit: int | None = None) -> list[StoredMessage]:
        """Return the messages after ``after``, oldest first, including those a branch shares with its parents."""
        found: list[StoredMessage] = []
        for number, first, last in self._list_segments(session_id):
            if last > after and (limit is None or len(found) < limit):
                rows = self._sql.rows(
                    f"SELECT {_COLUMNS} FROM messages WHERE id > ? AND id <= ? ORDER BY id LIMIT ?",
                    (
                        (number << SEQ_BITS) + max(first - 1, after),
                        (number << SEQ_BITS) + last,
                        (1 << SEQ_BITS) if limit is None else limit - len(found),
                    ),
                )
                found += [_to_stored_message(session_id, row) for row in rows]
        return found

    def last(self, session_id: SessionId, count: int) -> list[StoredMessage]:
        """Return the newest ``count`` messages, oldest first."""
        segments = self._list_segments(session_id)
        return self.load(session_id, after=max(0, segments[-1][2] - count)) if segments else []

    def with_platform_id(self, session_id: SessionId, platform_message_id: str) -> StoredMessage | None:
        """Return the newest message with this id of the network, or ``None``."""
        for number, first, last in reversed(self._list_segments(session_id)):
            row = self._sql.row(
                f"SELECT {_COLUMNS} FROM messages WHERE platform_message_id = ? AND id BETWEEN ? AND ?"
                " ORDER BY id DESC LIMIT 1",
                (platform_message_id, (number << SEQ_BITS) + first, (number << SEQ_BITS) + last),
            )
            if row:
                return _to_stored_message(session_id, row)
        return None

    def _list_segments(self, session_id: SessionId) -> list[tuple[int, int, int]]:
        """Return (session number, first seq, last seq) for each ancestor's part of the transcript, oldest first."""
        segments: list[tuple[int, int, int]] = []
        current_id: str | None = session_id
        last_shared: int | None = None
        while current_id is not None and last_shared != 0:
            row = self._sql.row(
                "SELECT number, parent_id, parent_seq, last_seq FROM sessions WHERE id = ?", (current_id,)
            )
            if row is None:
                break
            number, parent, shared, last = row
            segments.insert(0, (number, shared + 1, last if last_shared is None else last_shared))
            current_id, last_shared = parent, shared if last_shared is None else min(shared, last_shared)
        return segments


def _to_stored_message(session_id: SessionId, row: Row) -> StoredMessage:
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

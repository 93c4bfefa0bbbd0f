"""Sessions: titles, lineage, owners and costs; their transcripts, and full-text search over these."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct

from talaria.core.ids import SessionId
from talaria.core.messages import Message, Role, Usage

SESSION_CHANGES = "session_changes"  # topic notified when a session is changed, or a turn begins or ends


class Viewer(Struct, frozen=True):
    """The person and audience for whom sessions are shown.

    In a private chat people see all their sessions. Where others can read they see only what was said before the same
    audience.
    """

    owner: str = ""
    audience: str = ""


class Session(Struct, frozen=True, kw_only=True):
    """A session without its messages.

    ``owner`` is empty for the owner of the agent. ``audience`` is who can read its chat, empty for a private one;
    binding a session to a chat gives it the audience of that chat.
    """

    id: SessionId
    source: str
    created_at: datetime
    updated_at: datetime
    title: str = ""
    owner: str = ""
    audience: str = ""
    model: str = ""
    parent_id: SessionId | None = None
    parent_seq: int = 0
    message_count: int = 0
    archived_at: datetime | None = None
    usage: Usage = Usage()


class NewSession(Struct, frozen=True, kw_only=True):
    """The initial values of a session.

    With a ``parent_id`` and a ``parent_seq`` above zero it is a branch: the parent's messages up to and including that
    one are its history. With ``parent_seq`` zero the parent is only recorded. An imported session has a ``created_at``.
    """

    source: str
    id: SessionId | None = None
    title: str = ""
    owner: str = ""
    audience: str = ""
    model: str = ""
    parent_id: SessionId | None = None
    parent_seq: int = 0
    created_at: datetime | None = None


class SessionFilter(Struct, frozen=True, kw_only=True):
    """Criteria for listing sessions; omitted ones match everything."""

    id: SessionId | None = None
    matching: str = ""
    titled: bool | None = None
    source: str = ""
    owner: str | None = None
    seen_by: Viewer | None = None
    parent_id: SessionId | None = None
    updated_before: datetime | None = None
    updated_after: datetime | None = None
    archived: bool | None = False
    dearest_first: bool = False
    limit: int | None = 50


class SessionChanges(Struct, frozen=True, kw_only=True):
    """New values for a session; ``None`` keeps a value."""

    title: str | None = None
    model: str | None = None
    owner: str | None = None
    audience: str | None = None
    archived: bool | None = None
    updated_at: datetime | None = None


class Sessions(Protocol):
    """All sessions."""

    def create(self, new: NewSession) -> Session:
        """Create a session, or raise `NotFound` for a missing parent."""

    def get(self, session_id: SessionId) -> Session | None:
        """Return one session, or ``None``."""

    def find(self, criteria: SessionFilter) -> list[Session]:
        """Return matching sessions, last used first, or those that cost most first.

        ``matching`` fits a whole id, the beginning of one, or a part of a title in any case; an exact id or title is
        returned alone.
        """

    def update(self, session_id: SessionId, changes: SessionChanges) -> Session:
        """Change the given values and return the result, or raise `NotFound`."""

    def delete(self, session_id: SessionId) -> bool:
        """Delete a session and everything that belongs to it; branches keep the history they share."""


class StoredMessage(Struct, frozen=True):
    """A stored message; ``seq`` counts from 1 within the session, without gaps."""

    session_id: SessionId
    seq: int
    message: Message


class Messages(Protocol):
    """The messages of sessions, in stored order."""

    def append(self, session_id: SessionId, messages: Sequence[Message]) -> int:
        """Add messages at the end and return the ``seq`` of the last; raises `NotFound`."""

    def load(self, session_id: SessionId, *, after: int = 0, limit: int | None = None) -> list[StoredMessage]:
        """Return the transcript after ``after``, oldest first, including the history that a branch shares."""

    def last(self, session_id: SessionId, count: int) -> list[StoredMessage]:
        """Return the newest ``count`` messages, oldest first."""

    def with_platform_id(self, session_id: SessionId, platform_message_id: str) -> StoredMessage | None:
        """Return the message with this id of a network."""


class SearchQuery(Struct, frozen=True, kw_only=True):
    """A search query.

    ``text`` is what a person typed: all words must occur; "quotes" make a phrase, ``word*`` a prefix, ``-word``
    excludes, ``OR`` between words gives a choice. Anything else counts as plain words.
    """

    text: str
    source: str = ""
    role: Role | None = None
    session_id: SessionId | None = None
    owner: str | None = None
    seen_by: Viewer | None = None
    since: datetime | None = None
    until: datetime | None = None
    limit: int = 20


class Hit(Struct, frozen=True, kw_only=True):
    """A matching message; ``snippet`` has the matched words between ``[`` and ``]``."""

    session_id: SessionId
    session_title: str
    seq: int
    role: Role
    at: datetime
    snippet: str
    score: float


class Search(Protocol):
    """Full-text search, best matches first; for a very common word the newest matches are ranked."""

    def find(self, query: SearchQuery) -> list[Hit]:
        """Return the best matches; text without a word in it finds nothing and never raises."""

    def unindexed(self) -> int:
        """Return the number of messages not indexed yet; `find` searches the newest 2,000 of them itself."""

    def catch_up(self, count: int = 200) -> int:
        """Index up to ``count`` messages that are stored but not indexed, and return how many were."""

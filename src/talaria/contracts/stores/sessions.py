"""Conversations: their titles, lineage, owners and what they have cost."""

from datetime import datetime
from typing import Protocol

from msgspec import Struct

from talaria.core.ids import SessionId
from talaria.core.messages import Usage


class Viewer(Struct, frozen=True):
    """From where somebody looks at conversations: as whom, and before which audience.

    In a private place people see all that is theirs, wherever it was said. Where others read along they see of it
    only what was said before those others.
    """

    owner: str = ""
    audience: str = ""


class Session(Struct, frozen=True, kw_only=True):
    """One conversation, without its messages.

    ``owner`` is whose it is, empty for the owner of the agent. ``audience`` is who reads along in the place where it
    is, empty for a private one; binding a conversation to a place gives it the audience of that place.
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
    """What a conversation starts with.

    With a ``parent_id`` and a ``parent_seq`` above zero it is a branch: the parent's messages up to and
    including that one are its own past. With ``parent_seq`` zero the parent is only remembered.
    """

    source: str
    id: SessionId | None = None
    title: str = ""
    owner: str = ""
    audience: str = ""
    model: str = ""
    parent_id: SessionId | None = None
    parent_seq: int = 0


class SessionFilter(Struct, frozen=True, kw_only=True):
    """Which conversations to list; what is left out does not matter."""

    id: SessionId | None = None
    matching: str = ""
    titled: bool | None = None
    source: str = ""
    owner: str | None = None
    seen_by: Viewer | None = None
    parent_id: SessionId | None = None
    updated_before: datetime | None = None
    archived: bool | None = False
    limit: int | None = 50


class SessionChanges(Struct, frozen=True, kw_only=True):
    """New values for a conversation; ``None`` leaves a value as it is."""

    title: str | None = None
    model: str | None = None
    owner: str | None = None
    audience: str | None = None
    archived: bool | None = None


class Sessions(Protocol):
    """The conversations there are."""

    def create(self, new: NewSession) -> Session:
        """Start a conversation, or raise `NotFound` for a parent that is not there."""

    def get(self, session_id: SessionId) -> Session | None:
        """Return one conversation, or ``None``."""

    def find(self, wanted: SessionFilter) -> list[Session]:
        """Return those that fit, last used first.

        ``matching`` fits a whole id, the beginning of one, or a part of a title in any case; an exact id
        or title is returned alone.
        """

    def update(self, session_id: SessionId, changes: SessionChanges) -> Session:
        """Change what is given and return the result, or raise `NotFound`."""

    def add_usage(self, session_id: SessionId, usage: Usage) -> None:
        """Add to the counters."""

    def delete(self, session_id: SessionId) -> bool:
        """Remove a conversation and all that hangs on it; branches keep the past they share."""

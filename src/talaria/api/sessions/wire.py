"""Wire types of sessions."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.contracts.stores.sessions import Hit, Session, StoredMessage
from talaria.core.messages import Part, Role, Usage

_ShortText = Annotated[str, Meta(max_length=1000)]


class SessionsQuery(Struct, frozen=True):
    """Which sessions to list: ``q`` is a part of a title or the beginning of an id, ``after`` a ``next``."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 20
    after: Annotated[str, Meta(pattern=r"^(\d{1,16}\.\w{1,64})?$")] = ""
    q: _ShortText = ""
    source: _ShortText = ""
    archived: bool = False


class MessagesQuery(Struct, frozen=True):
    """Which messages to show: those after this number."""

    after: Annotated[int, Meta(ge=0, le=2**31)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class SessionSearchQuery(Struct, frozen=True):
    """A search: all words must occur; "quotes" make a phrase, ``word*`` a prefix, ``-word`` excludes."""

    q: Annotated[str, Meta(min_length=1, max_length=1000)]
    source: _ShortText = ""
    session_id: _ShortText = ""
    role: Role | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class SessionView(Struct, frozen=True, kw_only=True):
    """A session without its messages.

    ``address`` is that of its chat, as ``platform:chat[:thread]``; ``handoff`` is the state of a handoff.
    """

    id: str
    title: str
    source: str
    model: str
    created_at: datetime
    updated_at: datetime
    message_count: int
    parent_id: str | None
    parent_seq: int
    archived: bool
    usage: Usage
    object: Literal["session"] = "session"
    running: bool | None = None
    address: str | None = None
    handoff: str | None = None
    handoff_error: str | None = None


class SessionList(Struct, frozen=True):
    """A page of sessions, last used first; pass ``next`` as ``after`` for the following page."""

    data: list[SessionView]
    has_more: bool
    next: str | None
    object: Literal["list"] = "list"


class MessageView(Struct, frozen=True):
    """A message and its number in the session."""

    seq: int
    role: Role
    parts: tuple[Part, ...]
    text: str
    at: datetime
    author: str
    model: str


class MessageList(Struct, frozen=True):
    """A page of messages, oldest first."""

    data: list[MessageView]
    has_more: bool
    object: Literal["list"] = "list"


class HitView(Struct, frozen=True, kw_only=True):
    """A match; ``snippet`` has the matched words between ``[`` and ``]``."""

    session_id: str
    session_title: str
    seq: int
    role: Role
    at: datetime
    snippet: str


class HitList(Struct, frozen=True):
    """Matches, best first."""

    data: list[HitView]
    object: Literal["list"] = "list"


class ForkRequest(Struct, frozen=True):
    """Start of a branch: after message ``upto``, by default after the last one."""

    upto: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    title: Annotated[str, Meta(max_length=200)] = ""


class MoveRequest(Struct, frozen=True):
    """The target of a handoff, ``platform`` or ``platform:chat``, and how long to wait for it.

    With ``now`` it moves at once, in the middle of a turn if one is running, and the agent isn't informed.
    """

    to: Annotated[str, Meta(min_length=1, max_length=500)]
    now: bool = False
    timeout_seconds: Annotated[float, Meta(ge=0, le=120)] = 60.0


class DeletedSession(Struct, frozen=True):
    """A deleted session."""

    id: str
    object: Literal["session.deleted"] = "session.deleted"
    deleted: bool = True


def to_session_view(session: Session) -> SessionView:
    """Return a session for clients."""
    return SessionView(
        id=session.id,
        title=session.title,
        source=session.source,
        model=session.model,
        created_at=session.created_at,
        updated_at=session.updated_at,
        message_count=session.message_count,
        parent_id=session.parent_id,
        parent_seq=session.parent_seq,
        archived=session.archived_at is not None,
        usage=session.usage,
    )


def to_message_view(stored: StoredMessage) -> MessageView:
    """Return a message for clients."""
    message = stored.message
    return MessageView(stored.seq, message.role, message.parts, message.text, message.at, message.author, message.model)


def to_hit_view(hit: Hit) -> HitView:
    """Return a match for clients."""
    return HitView(
        session_id=hit.session_id,
        session_title=hit.session_title,
        seq=hit.seq,
        role=hit.role,
        at=hit.at,
        snippet=hit.snippet,
    )

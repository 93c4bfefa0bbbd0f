"""Conversations as clients see them."""

from datetime import datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.contracts.stores.messages import StoredMessage
from talaria.contracts.stores.search import Hit
from talaria.contracts.stores.sessions import Session
from talaria.core.messages import Part, Role, Usage

_Words = Annotated[str, Meta(max_length=1000)]


class SessionsQuery(Struct, frozen=True):
    """Which conversations to list: ``q`` is a part of a title or the beginning of an id, ``after`` a ``next``."""

    limit: Annotated[int, Meta(ge=1, le=200)] = 20
    after: Annotated[str, Meta(pattern=r"^(\d{1,16}\.\w{1,64})?$")] = ""
    q: _Words = ""
    source: _Words = ""
    archived: bool = False


class MessagesQuery(Struct, frozen=True):
    """Which messages to show: those behind this number."""

    after: Annotated[int, Meta(ge=0, le=2**31)] = 0
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class SearchQueryWords(Struct, frozen=True):
    """What to look for: all words; "quotes" make a phrase, ``word*`` a beginning, ``-word`` excludes."""

    q: Annotated[str, Meta(min_length=1, max_length=1000)]
    source: _Words = ""
    session_id: _Words = ""
    role: Role | None = None
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class SessionView(Struct, frozen=True, kw_only=True):
    """A conversation without its messages.

    ``place`` is the chat in which it goes on, as ``platform:chat[:thread]``; ``handoff`` is how far a move has come.
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
    place: str | None = None
    handoff: str | None = None
    handoff_error: str | None = None


class SessionList(Struct, frozen=True):
    """A page of conversations, last used first; ``next`` asks for the page behind it."""

    data: list[SessionView]
    has_more: bool
    next: str | None
    object: Literal["list"] = "list"


class MessageView(Struct, frozen=True):
    """A message and its number in the conversation."""

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
    """A message that was found; ``snippet`` has the words that made it fit between ``[`` and ``]``."""

    session_id: str
    session_title: str
    seq: int
    role: Role
    at: datetime
    snippet: str


class HitList(Struct, frozen=True):
    """What was found, best first."""

    data: list[HitView]
    object: Literal["list"] = "list"


class ForkRequest(Struct, frozen=True):
    """Where a branch begins: behind message ``upto``, without it behind the last one."""

    upto: Annotated[int, Meta(ge=1, le=2**31)] | None = None
    title: Annotated[str, Meta(max_length=200)] = ""


class MoveRequest(Struct, frozen=True):
    """Where a conversation is to go on: ``platform``, or ``platform:chat``; at most this long is waited for it.

    With ``now`` it goes as it is, in the middle of a turn if one is running, and the agent is told nothing of it.
    """

    to: Annotated[str, Meta(min_length=1, max_length=500)]
    now: bool = False
    timeout_seconds: Annotated[float, Meta(ge=0, le=120)] = 60.0


class Deleted(Struct, frozen=True):
    """That a conversation is gone."""

    id: str
    object: Literal["session.deleted"] = "session.deleted"
    deleted: bool = True


def session_view(session: Session) -> SessionView:
    """Return a conversation as clients see it."""
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


def message_view(stored: StoredMessage) -> MessageView:
    """Return a message as clients see it."""
    message = stored.message
    return MessageView(stored.seq, message.role, message.parts, message.text, message.at, message.author, message.model)


def hit_view(hit: Hit) -> HitView:
    """Return something that was found as clients see it."""
    return HitView(
        session_id=hit.session_id,
        session_title=hit.session_title,
        seq=hit.seq,
        role=hit.role,
        at=hit.at,
        snippet=hit.snippet,
    )

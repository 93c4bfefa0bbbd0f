"""Sessions: titles, owners and costs, transcripts and search; the chats that they are bound to, and moves to others."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal, Protocol, TypedDict

from msgspec import Struct

from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Role, Usage

HandoffStatus = Literal["pending", "running", "completed", "failed"]
CLAIM_LIFE = timedelta(seconds=120)
REQUEST_LIFE = timedelta(seconds=60)
HANDOFF_LIFE = REQUEST_LIFE + CLAIM_LIFE
EXPIRED = f"no gateway picked it up within {REQUEST_LIFE.total_seconds():.0f} s"
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

    def count_unindexed(self) -> int:
        """Return the number of messages not indexed yet; `find` searches the newest 2,000 of them itself."""

    def catch_up(self, count: int = 200) -> int:
        """Index up to ``count`` messages that are stored but not indexed, and return how many were."""


class Binding(Struct, frozen=True):
    """The chat with this ``key`` is bound to session ``session_id``."""

    key: str
    session_id: SessionId
    address: Address
    bound_at: datetime


class Bindings(Protocol):
    """Chats and the sessions they are bound to; a chat has one at a time."""

    def bind(self, key: str, session_id: SessionId, address: Address) -> Binding | None:
        """Bind a chat to a session and return the binding that this replaces.

        The session takes over the audience of that chat.
        """

    def get(self, key: str) -> Binding | None:
        """Return the binding of a chat."""

    def of_session(self, session_id: SessionId) -> list[Binding]:
        """Return all bindings of a session, last bound first."""

    def under(self, prefix: str) -> list[Binding]:
        """Return all bindings whose key has this prefix, last bound first."""

    def unbind(self, key: str) -> bool:
        """Remove the binding of a chat."""


"""How long a request stays pending: by then the requester has given up, or is dead."""


"""How long after the request a worker may still act on it."""


class HandoffState(TypedDict):
    """State of the last handoff of a session; all ``None`` if none was ever requested."""

    state: HandoffStatus | None
    platform: str | None
    error: str | None


class HandoffThread(Struct, frozen=True):
    """Thread created for a handoff in a chat; ``thread_id`` is empty where the chat cannot have threads."""

    chat_id: str
    thread_id: str


class PendingHandoff(Struct, frozen=True):
    """A handoff that is pending or running.

    Without a ``target`` it goes to the home chat. An ``immediate`` one takes a running turn along. ``thread`` is the
    thread that an earlier attempt created; it is valid for its chat only.
    """

    session_id: SessionId
    title: str
    platform: str
    target: Address | None = None
    immediate: bool = False
    thread: HandoffThread | None = None


class HandoffRequests(Protocol):
    """The requester's side."""

    def request_handoff(
        self, session_id: SessionId, platform: str, *, target: Address | None = None, immediate: bool = False
    ) -> bool:
        """Request a handoff; ``False`` while one is pending or running, and for an unknown session.

        A request expires: `REQUEST_LIFE` after it was made if it is still pending, `HANDOFF_LIFE` after it was made if
        it is running and its claim has lapsed. From then on every call treats it as failed.
        """

    def get_handoff_state(self, session_id: SessionId) -> HandoffState | None:
        """Return the state of the last handoff, or ``None`` for an unknown session."""

    def find_active_handoff(self, session_id: SessionId) -> PendingHandoff | None:
        """Return the handoff of a session that is pending or running, if there is one."""

    def withdraw_handoff(self, session_id: SessionId, reason: str) -> bool:
        """Fail a pending or running handoff on behalf of the requester; ``False`` if it has ended."""


class HandoffWork(Protocol):
    """The worker's side; a claim belongs to the worker whose store made it."""

    def list_pending_handoffs(self) -> list[PendingHandoff]:
        """Return the pending ones, oldest request first."""

    def list_lapsed_handoffs(self) -> list[PendingHandoff]:
        """Return those whose worker is dead or let the claim lapse, oldest request first."""

    def claim_handoff(self, session_id: SessionId, life: timedelta = CLAIM_LIFE) -> bool:
        """Claim a pending or lapsed handoff that has not expired: exactly one of all claimers gets ``True``."""

    def store_thread(self, session_id: SessionId, thread: HandoffThread | None) -> None:
        """Store the thread created for a handoff, so that a later attempt uses it; ``None`` forgets it."""

    def complete_handoff(self, session_id: SessionId) -> bool:
        """Mark this worker's running handoff as completed; ``False`` if it is no longer its own."""

    def fail_handoff(self, session_id: SessionId, reason: str) -> bool:
        """Mark a pending handoff, or this worker's running one, as failed; the reason is cut at 500 characters."""


class Handoffs(HandoffRequests, HandoffWork, Protocol):
    """Both sides of a handoff. State, platform and error are also columns of the session's row."""

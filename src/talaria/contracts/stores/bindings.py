"""Bindings: which session is bound to which chat, and requests to move a session to another chat."""

from datetime import datetime, timedelta
from typing import Literal, Protocol, TypedDict

from msgspec import Struct

from talaria.core.addresses import Address
from talaria.core.ids import SessionId

HandoffStatus = Literal["pending", "running", "completed", "failed"]
CLAIM_LIFE = timedelta(seconds=120)
REQUEST_LIFE = timedelta(seconds=60)


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


HANDOFF_LIFE = REQUEST_LIFE + CLAIM_LIFE


"""How long after the request a worker may still act on it."""


EXPIRED = f"no gateway picked it up within {REQUEST_LIFE.total_seconds():.0f} s"


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

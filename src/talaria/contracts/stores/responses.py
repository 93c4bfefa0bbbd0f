"""Records of the API: stored responses, durable runs, answers to repeated requests."""

from datetime import datetime, timedelta
from typing import Literal, Protocol

from msgspec import Struct

from talaria.core.ids import SessionId

ApiRunState = Literal["queued", "running", "waiting", "completed", "failed", "stopped"]


class StoredResponse(Struct, frozen=True, kw_only=True):
    """A response that a client may refer back to."""

    id: str
    session_id: SessionId
    body: str
    conversation: str = ""
    previous_id: str | None = None


class ApiRun(Struct, frozen=True, kw_only=True):
    """A run that continues without its client; its events are in the stream ``run:<id>``."""

    id: str
    session_id: SessionId
    request: str
    state: ApiRunState = "queued"
    error: str = ""
    created_at: datetime | None = None
    updated_at: datetime | None = None


class IdempotentAnswer(Struct, frozen=True):
    """The first answer to a request; ``fingerprint`` tells whether a repetition is the same request."""

    fingerprint: str
    answer: str | None


class Responses(Protocol):
    """Stored responses and the answers to keyed requests."""

    def put(self, response: StoredResponse) -> None:
        """Store a response."""

    def get(self, response_id: str) -> StoredResponse | None:
        """Return a response."""

    def latest_response(self, conversation: str) -> StoredResponse | None:
        """Return the last response of a named conversation."""

    def delete(self, response_id: str) -> bool:
        """Delete a response."""

    def reserve_request(
        self, key: str, fingerprint: str, life: timedelta, *, instead_of: str = ""
    ) -> IdempotentAnswer | None:
        """Reserve a key for a first request, or return the earlier one unless it has expired.

        ``instead_of`` is the fingerprint of a reservation that may be replaced: an abandoned one, or the caller's own,
        which is extended.
        """

    def store_answer(self, key: str, fingerprint: str, answer: str, life: timedelta) -> None:
        """Store the answer for repetitions, unless the key was reserved for another request meanwhile."""

    def conversation_session(self, name: str) -> SessionId | None:
        """Return the session with a conversation name."""

    def name_conversation(self, name: str, session_id: SessionId, *, former: SessionId | None) -> bool:
        """Give a session a name; ``False`` if the name is not that of ``former``, or not free, any more."""


class ApiRuns(Protocol):
    """Durable runs."""

    def create(self, run: ApiRun) -> ApiRun:
        """Record a run."""

    def get(self, run_id: str) -> ApiRun | None:
        """Return a run."""

    def move(self, run_id: str, to: ApiRunState, error: str = "") -> bool:
        """Change the state of a run; ``False`` if it has ended or doesn't exist."""

    def open(self) -> list[ApiRun]:
        """Return the runs that have not ended, oldest first."""

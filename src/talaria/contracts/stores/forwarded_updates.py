"""Rows of updates that one worker has stored for another, whose chat they belong to."""

from typing import Protocol

from talaria.core.ids import SessionId, WorkerId


class ForwardedUpdates(Protocol):
    """Updates on their way to another worker; they are deleted with their session."""

    def add(self, worker: WorkerId, session_id: SessionId, body: str) -> None:
        """Store an encoded update for a worker."""

    def take(self, worker: WorkerId) -> list[str]:
        """Remove the updates for a worker and return them, oldest first."""

    def workers(self) -> list[WorkerId]:
        """Return the workers that updates are stored for, in order."""

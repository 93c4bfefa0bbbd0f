"""Turns and their steps: the progress of work, so that it can resume after a crash."""

from datetime import datetime
from typing import Literal, Protocol

from msgspec import Struct

from talaria.core.ids import SessionId, TurnId, WorkerId

TurnState = Literal["running", "answered", "stopped", "failed", "out_of_budget"]


class Turn(Struct, frozen=True, kw_only=True):
    """One turn of a session."""

    id: TurnId
    session_id: SessionId
    worker: WorkerId
    state: TurnState
    started_at: datetime
    ended_at: datetime | None = None
    error: str = ""


class Step(Struct, frozen=True, kw_only=True):
    """A model call or a tool call; without an ``ended_at`` it was started and its outcome is unknown."""

    turn_id: TurnId
    number: int
    kind: str
    name: str
    request: str
    started_at: datetime
    ended_at: datetime | None = None
    result: str | None = None


class Turns(Protocol):
    """All turns and their steps."""

    def begin(self, session_id: SessionId, turn_id: TurnId) -> Turn:
        """Record that this worker has started a turn."""

    def end(self, turn_id: TurnId, state: TurnState, error: str = "") -> bool:
        """Record how a running turn ended; ``False`` if it had already ended."""

    def find(
        self, session_id: SessionId | None = None, *, running: bool = False, limit: int | None = None
    ) -> list[Turn]:
        """Return turns, oldest first: of one session or of all, and only unfinished ones if ``running``.

        With a ``limit`` these are the last ones.
        """

    def begin_step(
        self, turn_id: TurnId, kind: str, name: str, request: str, at: datetime | None = None, result: str | None = None
    ) -> int:
        """Insert a step, started now or at ``at``, and return its number within the turn.

        With a ``result`` it has ended already.
        """

    def end_step(self, turn_id: TurnId, number: int, result: str, at: datetime | None = None) -> None:
        """Record the result of a step."""

    def steps(self, turn_id: TurnId) -> list[Step]:
        """Return the steps of a turn in order."""

"""Work and its cost: turns with their steps and leases, background processes, delegated tasks, and the ledger."""

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import Literal, Protocol

from msgspec import Struct

from talaria.core.ids import SessionId, TurnId, WorkerId
from talaria.core.messages import Usage

UsageGroup = Literal["model", "surface", "owner"]
TurnState = Literal["running", "answered", "stopped", "failed", "out_of_budget"]


class Lease(Struct, frozen=True):
    """A lease: ``owner`` holds ``name`` until ``expires_at``; ``token`` grows with each change of owner."""

    name: str
    owner: WorkerId
    token: int
    expires_at: datetime


class Leases(Protocol):
    """Ownership that expires by itself when its owner dies."""

    def acquire(self, name: str, duration: timedelta) -> Lease | None:
        """Acquire a free or expired lease, or return ``None``, also if this worker already holds it."""

    def renew(self, lease: Lease, duration: timedelta) -> Lease:
        """Extend a lease, or raise `LeaseLost`."""

    def check(self, lease: Lease) -> None:
        """Raise `LeaseLost` unless this lease is still in force.

        The rest of the transaction is safe: nobody can take over the lease before it commits.
        """

    def release(self, lease: Lease) -> None:
        """Release a lease; one that was lost stays with its new owner."""

    def take_over(self, lease: Lease, duration: timedelta) -> Lease | None:
        """Take over the lease of an owner that is certainly dead, or return ``None`` if another worker was faster."""

    def get(self, name: str) -> Lease | None:
        """Return the current lease of a name, or ``None`` if it is free or expired."""


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


class ProcessRow(Struct, frozen=True, kw_only=True):
    """A background process: what it is looked up by, and its encoded record."""

    id: str
    session_id: SessionId
    alive: bool
    body: str
    version: int = 0


class Processes(Protocol):
    """Background processes. They outlive their session, because each must be ended before it is forgotten."""

    def add(self, row: ProcessRow) -> bool:
        """Add a process; ``False`` if its id is taken."""

    def replace(self, row: ProcessRow) -> bool:
        """Replace the process that was read with this version; ``False`` if it was changed since."""

    def get(self, process_id: str) -> ProcessRow | None:
        """Return a process, or ``None``."""

    def delete(self, process_id: str) -> None:
        """Delete a process."""

    def find(self, session_id: SessionId | None = None, *, alive: bool = False) -> list[ProcessRow]:
        """Return the processes of a session, or of all, ordered by id; with ``alive`` only those that run."""

    def with_prefix(self, prefix: str) -> list[ProcessRow]:
        """Return the processes whose ids start with ``prefix``, ordered by id."""


class DelegatedTaskRow(Struct, frozen=True, kw_only=True):
    """The delegated tasks of one call: what they are looked up by, and their encoded record."""

    key: str
    session_id: SessionId
    background: bool
    body: str


class DelegatedTasks(Protocol):
    """Delegated tasks. Those a turn waits for are deleted with its session; those in the background outlive it."""

    def get(self, key: str) -> DelegatedTaskRow | None:
        """Return the tasks stored under a key, or ``None``."""

    def put(self, row: DelegatedTaskRow) -> None:
        """Add or replace tasks."""

    def delete(self, key: str) -> None:
        """Delete tasks."""

    def of_session(self, session_id: SessionId, *, background: bool) -> list[DelegatedTaskRow]:
        """Return the tasks of a session that run in the background, or those a turn waits for, ordered by key."""

    def in_background(self) -> list[DelegatedTaskRow]:
        """Return all tasks in the background, ordered by key."""


class Completion(Struct, frozen=True, kw_only=True):
    """Background work ``source``/``external_id`` has ended, or has something to report."""

    id: int
    session_id: SessionId
    source: str
    external_id: str
    payload: str
    created_at: datetime


class Completions(Protocol):
    """Pending completions, in the order in which they happened."""

    def add(self, session_id: SessionId, source: str, external_id: str, payload: str) -> bool:
        """Record a completion; ``False`` if it was recorded before."""

    def take(self, session_id: SessionId) -> list[Completion]:
        """Return pending completions, each once; the same transaction must also deliver them."""

    def waiting(self) -> list[SessionId]:
        """Return the sessions with pending completions, longest waiting first."""


class Cap(Struct, frozen=True):
    """An account and its limit, in millionths of a dollar (or another unit of the account)."""

    account: str
    limit: int


class Hold(Struct, frozen=True):
    """An amount reserved until it is settled or expires."""

    id: str
    accounts: tuple[str, ...]
    amount: int


class Ledger(Protocol):
    """Accounts that the caller reserves on together: all, a person, a session, a goal, a child."""

    def reserve(self, caps: Sequence[Cap], amount: int, life: timedelta) -> Hold:
        """Reserve an amount on all accounts, or raise `OverBudget` with the first that has too little left."""

    def settle(self, hold: Hold, spent: int) -> None:
        """Replace a hold by the amount actually spent, even if the hold has expired."""

    def read_spent(self, account: str) -> int:
        """Return the amount spent on an account so far."""


class DailyUsage(Struct, frozen=True):
    """Usage of one day (UTC) and one member of a group, for example a model.

    ``unpriced_calls`` are the calls without a known price: they are missing in the cost.
    """

    day: date
    member: str
    turns: int
    unpriced_calls: int
    usage: Usage


class UsageLog(Protocol):
    """Usage of all sessions; days stay when their sessions are deleted."""

    def add(
        self,
        session_id: SessionId,
        usage: Usage,
        *,
        model: str = "",
        turns: int = 0,
        has_price: bool = True,
        at: datetime | None = None,
    ) -> None:
        """Add to the counters of a session, and to those of the day under its source and owner.

        Without a ``model`` it is that of the session; without a time the day is today. Unpriced calls count as such.
        """

    def by_day(self, group: UsageGroup, first: date, last: date, *, owner: str | None = None) -> list[DailyUsage]:
        """Return the usage of each day and member of a group, oldest first; with ``owner`` only of that person."""

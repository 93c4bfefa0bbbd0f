"""Rows of work that runs outside turns: background processes and delegated tasks."""

from datetime import datetime
from typing import Protocol

from msgspec import Struct

from talaria.core.ids import SessionId


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

"""Sessions in the store of a program's profile, created at any time in the past."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from tests.app.program import Program

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.sessions import NewSession, Session
from talaria.core.ids import SessionId
from talaria.core.messages import Message, Part, Role, Text
from talaria.settings.profiles import Profiles
from talaria.storage.sqlite.open import SqliteOptions, open_sqlite

T = TypeVar("T")


@dataclass(frozen=True)
class StoppedClock:
    """A clock that always returns the same time."""

    moment: datetime

    def now(self) -> datetime:
        return self.moment


def days_ago(days: float) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


@contextmanager
def opened(program: Program, *, at: datetime | None = None) -> Iterator[Database]:
    """Open the store of the program's profile as if it were ``at``."""
    clock: Clock = StoppedClock(at) if at else SystemClock()
    database = open_sqlite(Profiles(program.home).active().database_file, SqliteOptions(clock=clock))
    try:
        yield database
    finally:
        database.close()


def write(program: Program, work: Callable[[Transaction], T], *, at: datetime | None = None) -> T:
    with opened(program, at=at) as database:
        return database.write(work)


def read(program: Program, work: Callable[[Transaction], T]) -> T:
    with opened(program) as database:
        return database.read(work)


def converse(program: Program, new: NewSession, *messages: Message, at: datetime | None = None) -> Session:
    """Create a session with these messages and return it."""

    def work(store: Transaction) -> Session:
        session = store.sessions.create(new)
        if messages:
            store.messages.append(session.id, messages)
        return store.sessions.get(session.id) or session

    return write(program, work, at=at)


def text_message(text: str, *more: Part, role: Role = "user", at: datetime | None = None) -> Message:
    """Return a message with a text and further parts."""
    return Message(role=role, parts=(Text(text), *more), at=at or datetime.now(UTC))


def session_ids(program: Program, *arguments: str) -> list[SessionId]:
    """Return the first column of a list of sessions."""
    return [SessionId(line.split("\t")[0]) for line in program.run("sessions", *arguments).out.splitlines()]

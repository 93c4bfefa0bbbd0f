"""A store over one connection: transactions, several in one commit, and again after a conflict."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.core.errors import StoreConflict, StoreCorrupt, StoreError
from talaria.storage.tables.transaction import Tables

T = TypeVar("T")
Work = Callable[[Transaction], Any]
_ATTEMPTS = 5


class Connection(Protocol):
    """One connection of an engine, used by one thread at a time."""

    tables: Tables

    def begin(self, *, write: bool) -> None:
        """Start a transaction."""

    def commit(self) -> None:
        """Make it durable."""

    def rollback(self) -> None:
        """Undo it."""

    @property
    def is_tended(self) -> bool:
        """Whether nothing was written here since the upkeep was done."""

    def tend(self) -> bool:
        """Do a little upkeep that can wait; tell whether there is more."""

    def close(self) -> None:
        """Let go of the engine."""


class Outcome(Struct, frozen=True):
    """What became of a piece of work: its value, or the error that undid it."""

    value: Any = None
    error: Exception | None = None

    def unwrap(self) -> Any:
        """Return the value or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


class ConnectionDatabase:
    """Implements `Database`; ``on_damage`` is called when work meets something that cannot be read."""

    def __init__(self, connection: Connection, on_damage: Callable[[], None] = lambda: None) -> None:
        self.connection = connection
        self._on_damage = on_damage

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` on one unchanging view of the store."""
        self.connection.begin(write=False)
        try:
            return work(self.connection.tables)
        except StoreCorrupt:
            self._on_damage()
            raise
        finally:
            self.connection.rollback()

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` and keep all that it wrote, durably, or nothing if it raises."""
        result: T = self._alone(work).unwrap()
        return result

    def read_all(self, works: Sequence[Work]) -> list[Outcome]:
        """Run several pieces of work on one view of the store; where one of them raises, each on a view of its own."""
        if len(works) > 1:
            try:
                return self.read(lambda tx: [Outcome(work(tx)) for work in works])
            except Exception:  # noqa: BLE001, S110 (every work is run again alone, and raises there for its owner)
                pass
        return [self._read_alone(work) for work in works]

    def write_all(self, works: Sequence[Work]) -> list[Outcome]:
        """Run several pieces of work, in order, in one commit where that is possible.

        If one of them raises, all are undone and each is run again in a transaction of its own, so that one
        failure takes nothing else with it. A store that lets nobody begin is asked once for all of them.
        """
        if len(works) > 1:
            try:
                self.connection.begin(write=True)
            except StoreError as error:
                return [Outcome(error=error)] * len(works)
            try:
                return [Outcome(value) for value in self._through(works)]
            except Exception:  # noqa: BLE001, S110 (every work is run again alone, and raises there for its owner)
                pass
        return [self._alone(work) for work in works]

    @property
    def is_tended(self) -> bool:
        """Whether nothing was written here since the upkeep was done."""
        return self.connection.is_tended

    def tend(self) -> bool:
        """Do a little upkeep that can wait; tell whether there is more."""
        return self.connection.tend()

    def close(self) -> None:
        """Let go of the store."""
        self.connection.close()

    def _read_alone(self, work: Work) -> Outcome:
        try:
            return Outcome(self.read(work))
        except Exception as error:  # noqa: BLE001 (handed to whoever asked for this work)
            return Outcome(error=error)

    def _through(self, works: Sequence[Work]) -> list[Any]:
        """Do all of it in the transaction that has begun, and end that."""
        try:
            values = [work(self.connection.tables) for work in works]
            self.connection.commit()
        except BaseException as error:
            if isinstance(error, StoreCorrupt):
                self._on_damage()
            self.connection.rollback()
            raise
        return values

    def _alone(self, work: Work) -> Outcome:
        outcome = Outcome()
        for _ in range(_ATTEMPTS):
            try:
                self.connection.begin(write=True)
                return Outcome(self._through([work])[0])
            except StoreConflict as error:
                outcome = Outcome(error=error)
            except Exception as error:  # noqa: BLE001 (handed to whoever asked for this work)
                return Outcome(error=error)
        return outcome

"""Transactions on a single connection, with its tables, batched commits and retries after conflicts."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.core.errors import StoreConflict, StoreCorrupt, StoreError
from talaria.storage.tables.background_work import DelegatedTasksTable, ProcessesTable
from talaria.storage.tables.bindings import BindingsTable, HandoffsTable
from talaria.storage.tables.queues import CompletionsTable, EventsTable, ForwardedUpdatesTable, InboxTable, OutboxTable
from talaria.storage.tables.sessions import ArrivalLog, MessagesTable, SessionsTable, UsageTable
from talaria.storage.tables.sql import Sql
from talaria.storage.tables.turns import LeasesTable, TurnsTable
from talaria.storage.tables.values import NamedValuesTable, SessionValuesTable

if TYPE_CHECKING:  # a command loads only the subjects that it uses
    from talaria.contracts.jobs import Jobs
    from talaria.contracts.store import Archive
    from talaria.contracts.stores.access import ApiKeys, Pairing
    from talaria.contracts.stores.queues import Events, ForwardedUpdates, Inbox, Outbox
    from talaria.contracts.stores.responses import ApiRuns, Responses
    from talaria.contracts.stores.sessions import Bindings, Handoffs, Messages, Search, Sessions
    from talaria.contracts.stores.turns import Completions, DelegatedTasks, Leases, Ledger, Processes, Turns, UsageLog
    from talaria.contracts.stores.values import NamedValues, SessionValues


class Tables:
    """`Transaction` implementation, created once per connection and reused for each transaction.

    Tables that a turn does not need are loaded on first use.
    """

    api_keys: "ApiKeys"
    archive: "Archive"
    jobs: "Jobs"
    ledger: "Ledger"
    pairing: "Pairing"
    responses: "Responses"
    runs: "ApiRuns"
    usage: "UsageLog"

    def __init__(self, sql: Sql, arrivals: ArrivalLog, search: "Search", make_archive: "Callable[[], Archive]") -> None:
        self.sessions: Sessions = SessionsTable(sql, arrivals, self.notify)
        self.messages: Messages = MessagesTable(sql, arrivals)
        self.bindings: Bindings = BindingsTable(sql)
        self.leases: Leases = LeasesTable(sql)
        self.inbox: Inbox = InboxTable(sql, self.leases)
        self.turns: Turns = TurnsTable(sql, self.notify)
        self.outbox: Outbox = OutboxTable(sql)
        self.completions: Completions = CompletionsTable(sql)
        self.session_values: SessionValues = SessionValuesTable(sql)
        self.named_values: NamedValues = NamedValuesTable(sql)
        self.processes: Processes = ProcessesTable(sql)
        self.delegated_tasks: DelegatedTasks = DelegatedTasksTable(sql)
        self.forwarded_updates: ForwardedUpdates = ForwardedUpdatesTable(sql)
        self.events: Events = EventsTable(sql)
        self.handoffs: Handoffs = HandoffsTable(sql)
        self.search = search
        self._sql = sql
        self._make_archive = make_archive
        self._notified: dict[str, None] | None = None

    def __getattr__(self, name: str) -> Any:
        """Create a table on its first use."""
        table = self._make_archive() if name == "archive" else _make_table(name, self._sql)
        setattr(self, name, table)
        return table

    def begin(self, *, write: bool) -> None:
        """Reset the notifications for a new transaction; read-only transactions cannot notify."""
        self._notified = {} if write else None

    def notify(self, topic: str) -> None:
        """Wake the subscribers of a topic, in every process, after the commit; raises `StoreError` when read-only."""
        if self._notified is None:
            raise StoreError(f"The topic `{topic}` can't be notified in a read-only transaction.")
        self._notified[topic] = None

    def take_notified(self) -> list[str]:
        """Return and clear the topics to notify with this commit, without duplicates, in order."""
        notified, self._notified = self._notified, None
        return list(notified or ())


def _make_table(name: str, sql: Sql) -> object:
    match name:
        case "api_keys" | "pairing":
            from talaria.storage.tables.access import ApiKeysTable, PairingTable  # noqa: PLC0415 (loaded on first use)

            return ApiKeysTable(sql) if name == "api_keys" else PairingTable(sql)
        case "jobs":
            from talaria.storage.tables.jobs import JobsTable  # noqa: PLC0415 (loaded on first use)

            return JobsTable(sql)
        case "ledger":
            from talaria.storage.tables.turns import LedgerTable  # noqa: PLC0415 (loaded on first use)

            return LedgerTable(sql)
        case "responses" | "runs":
            from talaria.storage.tables.responses import ApiRunsTable, ResponsesTable  # noqa: PLC0415 (loaded on first use)

            return ApiRunsTable(sql) if name == "runs" else ResponsesTable(sql)
        case "usage":
            return UsageTable(sql)
        case _:
            raise AttributeError(name)


T = TypeVar("T")
Work = Callable[[Transaction], Any]
_MAX_ATTEMPTS = 5


class Connection(Protocol):
    """Database engine connection, used by one thread at a time."""

    tables: Tables

    def begin(self, *, write: bool) -> None:
        """Start a transaction."""

    def commit(self) -> Mapping[str, int]:
        """Commit durably, notify other processes and return the notified topics with their sequence numbers.

        Sequence numbers grow with each commit to the store; they are 0 where the engine has none.
        """

    def rollback(self) -> None:
        """Undo the transaction."""

    @property
    def is_maintained(self) -> bool:
        """Return whether nothing has been written on this connection since maintenance last finished."""

    def run_maintenance(self) -> bool:
        """Run one step of deferred maintenance and return whether more remains."""

    def close(self) -> None:
        """Close the connection."""


class Outcome(Struct, frozen=True):
    """Result of one unit of work: its return value, or the error that rolled it back."""

    value: Any = None
    error: Exception | None = None

    def unwrap(self) -> Any:
        """Return the value or raise the error."""
        if self.error is not None:
            raise self.error
        return self.value


class ConnectionDatabase:
    """`Database` implementation; calls ``on_corruption`` when work raises `StoreCorrupt`."""

    def __init__(self, connection: Connection, on_corruption: Callable[[], None] = lambda: None) -> None:
        self.connection = connection
        self._on_damage = on_corruption
        self._notified: dict[str, int] = {}

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` on a consistent snapshot of the store and return its result."""
        self.connection.begin(write=False)
        try:
            return work(self.connection.tables)
        except StoreCorrupt:
            self._on_damage()
            raise
        finally:
            self.connection.rollback()

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` and commit its writes durably, or roll back if it raises.

        Retried up to 5 times after `StoreConflict`, so ``work`` may run more than once.
        """
        result: T = self._write_alone(work).unwrap()
        return result

    def read_all(self, works: Sequence[Work]) -> list[Outcome]:
        """Run several reads on one snapshot; if one raises, repeat each on its own snapshot."""
        if len(works) > 1:
            try:
                return self.read(lambda tx: [Outcome(work(tx)) for work in works])
            except Exception:  # noqa: BLE001, S110 (each unit of work runs again alone and reports its own error)
                pass
        return [self._read_alone(work) for work in works]

    def write_all(self, works: Sequence[Work]) -> list[Outcome]:
        """Run several units of work, in order, in one commit if possible.

        If one of them raises, all are rolled back and each runs again in its own transaction, so one failure does not
        affect the others. If the transaction cannot begin, every outcome has that error.
        """
        if len(works) > 1:
            try:
                self.connection.begin(write=True)
            except StoreError as error:
                return [Outcome(error=error)] * len(works)
            try:
                return [Outcome(value) for value in self._run_and_commit(works)]
            except Exception:  # noqa: BLE001, S110 (each unit of work runs again alone and reports its own error)
                pass
        return [self._write_alone(work) for work in works]

    def take_notified(self) -> Mapping[str, int]:
        """Return and clear the topics notified by commits, with their latest sequence numbers."""
        notified, self._notified = self._notified, {}
        return notified

    @property
    def is_maintained(self) -> bool:
        """Return whether nothing has been written on this connection since maintenance last finished."""
        return self.connection.is_maintained

    def run_maintenance(self) -> bool:
        """Run one step of deferred maintenance and return whether more remains."""
        return self.connection.run_maintenance()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def _read_alone(self, work: Work) -> Outcome:
        try:
            return Outcome(self.read(work))
        except Exception as error:  # noqa: BLE001 (returned to the caller of this work)
            return Outcome(error=error)

    def _run_and_commit(self, works: Sequence[Work]) -> list[Any]:
        """Run all work in the open transaction and commit; roll back and re-raise on any error."""
        try:
            values = [work(self.connection.tables) for work in works]
            self._notified.update(self.connection.commit())
        except BaseException as error:
            if isinstance(error, StoreCorrupt):
                self._on_damage()
            self.connection.rollback()
            raise
        return values

    def _write_alone(self, work: Work) -> Outcome:
        outcome = Outcome()
        for _ in range(_MAX_ATTEMPTS):
            try:
                self.connection.begin(write=True)
                return Outcome(self._run_and_commit([work])[0])
            except StoreConflict as error:
                outcome = Outcome(error=error)
            except Exception as error:  # noqa: BLE001 (returned to the caller of this work)
                return Outcome(error=error)
        return outcome

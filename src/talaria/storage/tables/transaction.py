"""All store tables of one connection, and the notifications of its transaction."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from talaria.core.errors import StoreError
from talaria.storage.tables.background_work import DelegatedTasksTable, ProcessesTable
from talaria.storage.tables.bindings import BindingsTable, HandoffsTable
from talaria.storage.tables.queues import CompletionsTable, ForwardedUpdatesTable, InboxTable, OutboxTable
from talaria.storage.tables.sessions import ArrivalLog, MessagesTable, SessionsTable
from talaria.storage.tables.sql import Sql
from talaria.storage.tables.turns import LeasesTable, TurnsTable
from talaria.storage.tables.values import NamedValuesTable, SessionValuesTable

if TYPE_CHECKING:  # a command loads only the subjects that it uses
    from talaria.contracts.stores.api_keys import ApiKeys
    from talaria.contracts.stores.archive import Archive
    from talaria.contracts.stores.background_work import DelegatedTasks, Processes
    from talaria.contracts.stores.bindings import Bindings
    from talaria.contracts.stores.completions import Completions
    from talaria.contracts.stores.events import Events
    from talaria.contracts.stores.forwarded_updates import ForwardedUpdates
    from talaria.contracts.stores.handoffs import Handoffs
    from talaria.contracts.stores.inbox import Inbox
    from talaria.contracts.stores.jobs import Jobs
    from talaria.contracts.stores.leases import Leases
    from talaria.contracts.stores.ledger import Ledger
    from talaria.contracts.stores.messages import Messages
    from talaria.contracts.stores.outbox import Outbox
    from talaria.contracts.stores.pairing import Pairing
    from talaria.contracts.stores.responses import ApiRuns, Responses
    from talaria.contracts.stores.search import Search
    from talaria.contracts.stores.sessions import Sessions
    from talaria.contracts.stores.turns import Turns
    from talaria.contracts.stores.values import NamedValues, SessionValues


class Tables:
    """`Transaction` implementation, created once per connection and reused for each transaction.

    Tables that a turn does not need are loaded on first use.
    """

    api_keys: "ApiKeys"
    archive: "Archive"
    events: "Events"
    jobs: "Jobs"
    ledger: "Ledger"
    pairing: "Pairing"
    responses: "Responses"
    runs: "ApiRuns"

    def __init__(self, sql: Sql, arrivals: ArrivalLog, search: "Search", make_archive: "Callable[[], Archive]") -> None:
        self.sessions: Sessions = SessionsTable(sql, arrivals)
        self.messages: Messages = MessagesTable(sql, arrivals)
        self.bindings: Bindings = BindingsTable(sql)
        self.leases: Leases = LeasesTable(sql)
        self.inbox: Inbox = InboxTable(sql, self.leases)
        self.turns: Turns = TurnsTable(sql)
        self.outbox: Outbox = OutboxTable(sql)
        self.completions: Completions = CompletionsTable(sql)
        self.session_values: SessionValues = SessionValuesTable(sql)
        self.named_values: NamedValues = NamedValuesTable(sql)
        self.processes: Processes = ProcessesTable(sql)
        self.delegated_tasks: DelegatedTasks = DelegatedTasksTable(sql)
        self.forwarded_updates: ForwardedUpdates = ForwardedUpdatesTable(sql)
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
        case "events":
            from talaria.storage.tables.events import EventsTable  # noqa: PLC0415 (loaded on first use)

            return EventsTable(sql)
        case "jobs":
            from talaria.storage.tables.jobs import JobsTable  # noqa: PLC0415 (loaded on first use)

            return JobsTable(sql)
        case "ledger":
            from talaria.storage.tables.ledger import LedgerTable  # noqa: PLC0415 (loaded on first use)

            return LedgerTable(sql)
        case "responses" | "runs":
            from talaria.storage.tables.responses import ApiRunsTable, ResponsesTable  # noqa: PLC0415 (loaded on first use)

            return ApiRunsTable(sql) if name == "runs" else ResponsesTable(sql)
        case _:
            raise AttributeError(name)

"""The store as a whole: one unit of work over every subject, run at once or not at all."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:  # a command loads only the subjects that it uses
    from contextlib import AbstractAsyncContextManager

    from talaria.contracts.jobs import Jobs
    from talaria.contracts.stores.access import ApiKeys, Pairing
    from talaria.contracts.stores.queues import Events, ForwardedUpdates, Inbox, Outbox
    from talaria.contracts.stores.responses import ApiRuns, Responses
    from talaria.contracts.stores.sessions import Bindings, Handoffs, Messages, Search, Sessions
    from talaria.contracts.stores.turns import Completions, DelegatedTasks, Leases, Ledger, Processes, Turns, UsageLog
    from talaria.contracts.stores.values import NamedValues, SessionValues

T = TypeVar("T")
Cell = str | int | float | None


class Transaction(Protocol):
    """Everything that one transaction may touch; valid only while its function runs."""

    sessions: "Sessions"
    messages: "Messages"
    bindings: "Bindings"
    inbox: "Inbox"
    turns: "Turns"
    outbox: "Outbox"
    leases: "Leases"
    completions: "Completions"
    session_values: "SessionValues"
    named_values: "NamedValues"
    processes: "Processes"
    delegated_tasks: "DelegatedTasks"
    forwarded_updates: "ForwardedUpdates"
    api_keys: "ApiKeys"
    jobs: "Jobs"
    pairing: "Pairing"
    responses: "Responses"
    runs: "ApiRuns"
    events: "Events"
    search: "Search"
    handoffs: "Handoffs"
    ledger: "Ledger"
    usage: "UsageLog"
    archive: "Archive"

    def notify(self, topic: str) -> None:
        """Wake the subscribers of a topic, in every process, once the transaction is committed.

        Nothing is sent when the transaction is rolled back, and one notification per topic and commit otherwise.
        Raises `StoreError` in a transaction that only reads.
        """


class Database(Protocol):
    """A store for code that waits: short commands, and the threads of a `Store`.

    ``work`` is a plain function of the transaction. It runs in one transaction, cannot wait for anything
    else meanwhile, and may be run again after a conflict, so it must not have effects of its own.
    """

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` on one unchanging view of the store; work that writes raises `StoreError`."""

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` and keep all that it wrote, durably, or nothing if it raises."""

    def close(self) -> None:
        """Close the store."""


class Subscription(Protocol):
    """Notifications of some topics, for one task.

    A notification carries no data, and one from another process may be lost. So read the store after each `wait`,
    whatever it returns: it also returns periodically (every second by default) and when the store is closed.
    """

    @property
    def is_pending(self) -> bool:
        """Return whether the next `wait` returns at once."""

    async def wait(self) -> bool:
        """Wait for the next notification since the last call; the first call returns at once.

        Returns whether one of the topics was notified; ``False`` for a periodic check, which usually finds nothing.
        """

    def wake(self) -> None:
        """Let the waiting task check now; call it in the task's event loop."""


class Store(Protocol):
    """The same for code that must not wait: asyncio's side of a store."""

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` on one unchanging view of the store."""

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` and return when it is durable.

        Cancelling the wait does not undo the work: once queued, it runs to its end.
        """

    async def close(self) -> None:
        """Finish the queued work and close the store."""

    def subscribe(self, *topics: str) -> "AbstractAsyncContextManager[Subscription]":
        """Return a subscription to the notifications of all processes on these topics."""


class Archive(Protocol):
    """The tables as plain rows, the same on every engine; indexes and leases are not included."""

    def tables(self) -> list[str]:
        """Return the names of the tables, in the order in which to load them."""

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table, in the order of `rows`."""

    def rows(self, table: str) -> Iterator[Sequence[Cell]]:
        """Yield the rows of a table; only within the transaction."""

    def clear(self) -> None:
        """Remove every row of every table."""

    def load(self, table: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> int:
        """Add rows and return how many; columns that are not given get their defaults."""

    def finish(self) -> None:
        """Prepare the store for new rows after the last `load`."""

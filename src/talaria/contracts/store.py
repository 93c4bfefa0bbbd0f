"""The store as a whole: one unit of work over every subject, run at once or not at all."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from talaria.contracts.stores.archive import Archive
from talaria.contracts.stores.bindings import Bindings
from talaria.contracts.stores.completions import Completions
from talaria.contracts.stores.events import Events
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
from talaria.contracts.stores.state import State
from talaria.contracts.stores.turns import Turns

if TYPE_CHECKING:  # short commands do without these
    import asyncio
    from contextlib import AbstractAsyncContextManager

T = TypeVar("T")


class Transaction(Protocol):
    """Everything that one transaction may touch; valid only while its function runs."""

    sessions: Sessions
    messages: Messages
    bindings: Bindings
    inbox: Inbox
    turns: Turns
    outbox: Outbox
    leases: Leases
    completions: Completions
    state: State
    jobs: Jobs
    pairing: Pairing
    responses: Responses
    runs: ApiRuns
    events: Events
    search: Search
    handoffs: Handoffs
    ledger: Ledger
    archive: Archive


class Database(Protocol):
    """A store for code that waits: short commands, and the threads behind a `Store`.

    ``work`` is a plain function of the transaction. It runs in one transaction, cannot wait for anything
    else meanwhile, and may be run again after a conflict, so it must not have effects of its own.
    """

    def read(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` on one unchanging view of the store; work that writes raises `StoreError`."""

    def write(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` and keep all that it wrote, durably, or nothing if it raises."""

    def close(self) -> None:
        """Let go of the store."""


class Store(Protocol):
    """The same for code that must not wait: asyncio's side of a store."""

    async def read(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` on one unchanging view of the store."""

    async def write(self, work: Callable[[Transaction], T]) -> T:
        """Run ``work`` and return when it is durable.

        Cancelling the wait does not undo the work: once handed over it is carried out whole.
        """

    async def close(self) -> None:
        """Finish what was handed over and let go of the store."""

    async def hint(self, topic: str) -> None:
        """Tell whoever heeds a topic, in this process or another, that a look is worth it; hints may get lost."""

    def heeding(self, topic: str) -> "AbstractAsyncContextManager[asyncio.Event]":
        """Give an event that is set at each hint, and now and then without one; who heeds it looks and clears it."""

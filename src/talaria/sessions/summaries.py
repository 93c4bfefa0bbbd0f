"""Stored history of a session for its model: the current summary, and the messages after it."""

from msgspec import Struct

from talaria.agent.context_window import Summary
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.messages import StoredMessage
from talaria.contracts.values import SessionValue
from talaria.core.ids import SessionId
from talaria.sessions.prompt_prefix import record_break


class StoredSummary(Struct, frozen=True):
    """A summary, and whether a model has seen it yet."""

    summary: Summary
    shown: bool = False


SUMMARY = SessionValue("summary", StoredSummary)


def read_summary(tx: Transaction, session_id: SessionId) -> StoredSummary | None:
    """Return the current summary, without marking it as seen."""
    return SUMMARY.get(tx, session_id)


class StoredHistory:
    """Implementation of `History`."""

    def __init__(self, store: Store, session_id: SessionId) -> None:
        self._store = store
        self._session_id = session_id

    async def read(self, after: int) -> tuple[Summary | None, list[StoredMessage]]:
        """Return the current summary, and the messages after both ``after`` and its end."""

        def work(tx: Transaction) -> tuple[StoredSummary | None, list[StoredMessage]]:
            stored = self._read_summary(tx)
            covered = stored.summary.upto if stored else 0
            return stored, tx.messages.load(self._session_id, after=max(after, covered))

        stored, messages = await self._store.read(work)
        if stored is not None and not stored.shown:
            await self._store.write(self._mark_shown)
            stored, messages = await self._store.read(work)
        return stored.summary if stored else None, messages

    async def save(self, summary: Summary) -> None:
        """Store a new summary, unless another one that reaches as far was stored meanwhile."""

        def work(tx: Transaction) -> None:
            stored = self._read_summary(tx)
            if stored is None or stored.summary.upto < summary.upto:
                SUMMARY.write(tx, self._session_id, StoredSummary(summary))

        await self._store.write(work)

    def _read_summary(self, tx: Transaction) -> StoredSummary | None:
        return read_summary(tx, self._session_id)

    def _mark_shown(self, tx: Transaction) -> None:
        stored = self._read_summary(tx)
        if stored is not None and not stored.shown:
            SUMMARY.write(tx, self._session_id, StoredSummary(stored.summary, shown=True))
            record_break(tx, self._session_id, f"messages 1 to {stored.summary.upto} are summarised")

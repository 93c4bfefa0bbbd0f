"""The log of a conversation as its model reads it: the summary in force, and the messages after it."""

import msgspec
from msgspec import Struct

from talaria.agent.window import Summary
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.messages import StoredMessage
from talaria.core.ids import SessionId
from talaria.sessions.prefix import record_break


class KeptSummary(Struct, frozen=True):
    """A summary, and whether a model has been shown it yet."""

    summary: Summary
    shown: bool = False


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(KeptSummary).decode


def kept_summary(tx: Transaction, session_id: SessionId) -> KeptSummary | None:
    """Return the summary in force, without showing it to anybody."""
    entry = tx.state.get(_key(session_id))
    return _decode(entry.value) if entry else None


class StoredHistory:
    """Implements `History`."""

    def __init__(self, store: Store, session_id: SessionId) -> None:
        self._store = store
        self._session_id = session_id

    async def read(self, after: int) -> tuple[Summary | None, list[StoredMessage]]:
        """Return the summary in force, and the messages after both ``after`` and what it covers."""

        def work(tx: Transaction) -> tuple[KeptSummary | None, list[StoredMessage]]:
            kept = self._kept(tx)
            covered = kept.summary.upto if kept else 0
            return kept, tx.messages.load(self._session_id, after=max(after, covered))

        kept, messages = await self._store.read(work)
        if kept is not None and not kept.shown:
            await self._store.write(self._show)
            kept, messages = await self._store.read(work)
        return kept.summary if kept else None, messages

    async def save(self, summary: Summary) -> None:
        """Put a new summary in force, unless one that reaches as far was put there meanwhile."""

        def work(tx: Transaction) -> None:
            kept = self._kept(tx)
            if kept is None or kept.summary.upto < summary.upto:
                tx.state.put(_key(self._session_id), _encode(KeptSummary(summary)).decode())

        await self._store.write(work)

    def _kept(self, tx: Transaction) -> KeptSummary | None:
        return kept_summary(tx, self._session_id)

    def _show(self, tx: Transaction) -> None:
        kept = self._kept(tx)
        if kept is not None and not kept.shown:
            tx.state.put(_key(self._session_id), _encode(KeptSummary(kept.summary, shown=True)).decode())
            record_break(tx, self._session_id, f"messages 1 to {kept.summary.upto} are summarised")


def _key(session_id: SessionId) -> str:
    return f"summary:{session_id}"

"""The summary that stands for the older part of a conversation, kept beside its untouched log."""

import msgspec

from talaria.agent.window import Summary
from talaria.contracts.store import Store, Transaction
from talaria.core.ids import SessionId
from talaria.sessions.prefix import record_break

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Summary).decode


class StoredSummaries:
    """Implements `Summaries`."""

    def __init__(self, store: Store, session_id: SessionId) -> None:
        self._store = store
        self._session_id = session_id

    async def load(self) -> Summary | None:
        """Return the summary in force."""
        entry = await self._store.read(lambda tx: tx.state.get(f"summary:{self._session_id}"))
        return _decode(entry.value) if entry else None

    async def save(self, summary: Summary) -> None:
        """Put a new one in force, and record that the prefix changes because of it."""

        def work(tx: Transaction) -> None:
            tx.state.put(f"summary:{self._session_id}", _encode(summary).decode())
            record_break(tx, self._session_id, f"messages 1 to {summary.upto} are summarised")

        await self._store.write(work)

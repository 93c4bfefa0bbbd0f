"""A restart that somebody asked for in a chat: it is told there when it is over."""

from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Content
from talaria.contracts.store import Store, Transaction
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.core.wording import counted
from talaria.sessions.ending import Stop
from talaria.sessions.lane import waiting_sessions
from talaria.sessions.outgoing import queue_notice

_KEY = "gateway:restart"


class _Asked(Struct, frozen=True):
    session_id: SessionId
    address: Address
    at: datetime


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Asked).decode


class Restarting:
    """Implements `Service`; ``stop`` ends the process, which begins anew then."""

    def __init__(self, store: Store, stop: Stop, patience: float) -> None:
        self._store = store
        self._stop = stop
        self._patience = patience

    async def restart(self, session_id: SessionId, asked: Address) -> float:
        """Begin anew soon, and say there that it is done; returns how many seconds running turns have to end."""
        value = _encode(_Asked(session_id, asked, datetime.now(UTC))).decode()
        await self._store.write(lambda tx: tx.state.put(_KEY, value))
        self._stop.again = True
        self._stop.because("`/restart` in a chat")
        return self._patience


def say_that_it_is_back(tx: Transaction, version: str) -> None:
    """Tell the chat that asked for a restart, once, that it is over."""
    entry = tx.state.get(_KEY)
    if entry is None:
        return
    tx.state.delete(_KEY)
    asked = _decode(entry.value)
    resumed = len(waiting_sessions(tx))
    rest = f" {counted(resumed, 'conversation')} that had not ended goes on." if resumed == 1 else ""
    rest = f" {resumed} conversations that had not ended go on." if resumed > 1 else rest
    queue_notice(tx, asked.session_id, asked.address, Content(text=f"The gateway is back, version {version}.{rest}"))

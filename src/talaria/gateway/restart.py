"""Restart requested in a chat, which is notified when it is done."""

from datetime import UTC, datetime

from msgspec import Struct

from talaria.contracts.platform import Content
from talaria.contracts.store import Store, Transaction
from talaria.contracts.values import SINGLE, NamedValue
from talaria.core.addresses import Address
from talaria.core.aio import StopSignal
from talaria.core.formatting import pluralize
from talaria.core.ids import SessionId
from talaria.runtime.inbox import list_pending_sessions
from talaria.runtime.outbox import queue_notice


class _RestartRequest(Struct, frozen=True):
    session_id: SessionId
    address: Address
    at: datetime


RESTART_REQUEST = NamedValue("restart_request", _RestartRequest)


class RestartControl:
    """Restart control for chats; implements `GatewayControl`.

    ``stop`` ends the process, and its service starts it again. ``patience`` is the drain time in seconds.
    """

    def __init__(self, store: Store, stop: StopSignal, patience: float) -> None:
        self._store = store
        self._stop = stop
        self._patience = patience

    async def restart(self, session_id: SessionId, requested: Address) -> float:
        """Request a restart and notify the chat afterwards; return the seconds that running turns have to finish."""
        request = _RestartRequest(session_id, requested, datetime.now(UTC))
        await self._store.write(lambda tx: RESTART_REQUEST.write(tx, SINGLE, request))
        self._stop.request_restart("`/restart` in a chat")
        return self._patience


def announce_restart(tx: Transaction, version: str) -> None:
    """Notify the chat that asked for a restart, once, that it is done."""
    requested = RESTART_REQUEST.get(tx, SINGLE)
    if requested is None:
        return
    RESTART_REQUEST.delete(tx, SINGLE)
    resumed = len(list_pending_sessions(tx))
    rest = f" {pluralize(resumed, 'interrupted conversation')} resumes." if resumed == 1 else ""
    rest = f" {resumed} interrupted conversations resume." if resumed > 1 else rest
    queue_notice(
        tx, requested.session_id, requested.address, Content(text=f"The gateway is back, version {version}.{rest}")
    )

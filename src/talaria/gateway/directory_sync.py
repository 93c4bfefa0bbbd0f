"""Directory sync: records the chats that networks list, before their first message."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

from talaria.contracts.platform import KnownChat, ListingPlatform
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import TalariaError
from talaria.gateway.outbound.message_writer import call_with_timeout
from talaria.gateway.receiver import Receiver
from talaria.sessions.chat_directory import record_channel

_POLL_INTERVAL = 15.0
_MAX_AGE = timedelta(hours=1)
_CALL_SECONDS = 30.0

log = logging.getLogger(__name__)


class DirectorySync:
    """Sync of the chats of a worker's networks, after each connect and every hour."""

    def __init__(self, store: Store, networks: Sequence[Receiver]) -> None:
        self._store = store
        self._networks = [one for one in networks if one.platform.abilities.lists_chats]
        self._listed_at: dict[str, datetime] = {}

    async def serve(self) -> None:
        """List chats when they are due, until cancelled."""
        while self._networks:
            for network in self._networks:
                await self.refresh(network, datetime.now(UTC))
            await asyncio.sleep(_POLL_INTERVAL)

    async def refresh(self, network: Receiver, now: datetime) -> int:
        """List the chats of a connected network if that is due; return their number."""
        status = network.status
        listed_at = self._listed_at.get(status.name)
        is_new = listed_at is None or (status.since is not None and status.since > listed_at)
        if status.state != "connected" or not (is_new or (listed_at and now - listed_at > _MAX_AGE)):
            return 0
        self._listed_at[status.name] = now
        try:
            chats = await call_with_timeout(cast("ListingPlatform", network.platform).chats(), _CALL_SECONDS)
            await self._store.write(lambda tx: _store_chats(tx, chats, now))
        except TalariaError as error:
            log.info("%s: couldn't list its chats: %s", status.name, error)
            return 0
        return len(chats)


def _store_chats(tx: Transaction, chats: Sequence[KnownChat], now: datetime) -> None:
    for chat in chats:
        record_channel(tx, chat.address, chat.name, now)

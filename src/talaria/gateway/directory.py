"""The chats in which we are, as far as networks tell: kept in the directory before anybody has spoken there."""

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import cast

from talaria.contracts.platform import KnownChat, ListingPlatform
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import TalariaError
from talaria.gateway.network import Network
from talaria.gateway.placing import bounded
from talaria.sessions.channels import note_channel

_LOOK_AGAIN = 15.0
_FRESH = timedelta(hours=1)
_CALL = 30.0

log = logging.getLogger(__name__)


class Directory:
    """Asks the networks of one worker, behind each connection and every hour."""

    def __init__(self, store: Store, networks: Sequence[Network]) -> None:
        self._store = store
        self._networks = [one for one in networks if one.platform.abilities.lists_chats]
        self._asked: dict[str, datetime] = {}

    async def serve(self) -> None:
        """Ask when it is time, until cancelled."""
        while self._networks:
            for network in self._networks:
                await self.refresh(network, datetime.now(UTC))
            await asyncio.sleep(_LOOK_AGAIN)

    async def refresh(self, network: Network, now: datetime) -> int:
        """Ask a network if it is connected and was not asked lately; returns how many chats it told."""
        status = network.status
        asked = self._asked.get(status.name)
        is_new = asked is None or (status.since is not None and status.since > asked)
        if status.state != "connected" or not (is_new or (asked and now - asked > _FRESH)):
            return 0
        self._asked[status.name] = now
        try:
            chats = await bounded(cast("ListingPlatform", network.platform).chats(), _CALL)
            await self._store.write(lambda tx: _note(tx, chats, now))
        except TalariaError as error:
            log.info("%s: its chats were not listed: %s", status.name, error)
            return 0
        return len(chats)


def _note(tx: Transaction, chats: Sequence[KnownChat], now: datetime) -> None:
    for chat in chats:
        note_channel(tx, chat.address, chat.name, now)

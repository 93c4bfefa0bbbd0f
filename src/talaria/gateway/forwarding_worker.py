"""Worker for forwarded updates: processes what other workers received for chats of this one."""

import logging
from collections.abc import Mapping

from talaria.contracts.store import Store, Transaction
from talaria.core.errors import StoreError
from talaria.gateway.chats.registry import ChatRegistry
from talaria.gateway.dispatcher import Dispatcher
from talaria.gateway.forwarding import (
    ForwardedUpdate,
    forwarding_topic,
    has_forwarded_updates,
    take_forwarded_updates,
    take_orphaned_updates,
)

log = logging.getLogger(__name__)


class ForwardingWorker:
    """Worker for the updates forwarded to this process; ``dispatchers`` are those of its networks by name."""

    def __init__(self, store: Store, chats: ChatRegistry, dispatchers: Mapping[str, Dispatcher]) -> None:
        self._store = store
        self._chats = chats
        self._dispatchers = dispatchers

    async def serve(self) -> None:
        """Process forwarded updates as they arrive, until cancelled."""
        async with self._store.subscribe(forwarding_topic(self._chats.worker)) as subscription:
            while True:
                await subscription.wait()
                try:
                    await self.look()
                except StoreError as error:
                    log.warning("forwarded updates will be processed later: %s", error)

    async def look(self) -> int:
        """Start processing the stored updates, including those for dead workers, and return their number."""
        if not await self._store.read(has_forwarded_updates):
            return 0
        updates = await self._store.write(self._take_updates)
        for update in updates:
            dispatcher = self._dispatchers.get(update.incoming.address.platform)
            if dispatcher is not None:
                self._chats.start(dispatcher.receive_forwarded(update))
        return len(updates)

    def _take_updates(self, tx: Transaction) -> list[ForwardedUpdate]:
        return [*take_orphaned_updates(tx), *take_forwarded_updates(tx, self._chats.worker)]

"""Completion dispatch: results of background work wake their sessions in the worker that owns the chat."""

import asyncio
import logging
from collections.abc import Container

from talaria.contracts.store import Store, Transaction
from talaria.core.addresses import Address
from talaria.core.errors import StoreError
from talaria.core.ids import SessionId
from talaria.gateway.chats.assignment import claim_chat
from talaria.gateway.chats.registry import ChatRegistry
from talaria.runtime.completions import BATCH_WINDOW, WAKE, queue_reports_if_idle

log = logging.getLogger(__name__)


class CompletionDispatcher:
    """Dispatcher of completions for one worker; ``platforms`` are the networks that it serves."""

    def __init__(self, store: Store, chats: ChatRegistry, platforms: Container[str]) -> None:
        self._store = store
        self._chats = chats
        self._platforms = platforms

    async def serve(self) -> None:
        """Dispatch completions as they arrive, until cancelled."""
        async with self._store.subscribe(WAKE) as subscription:
            while True:
                await subscription.wait()
                try:
                    await self.look(BATCH_WINDOW)
                except StoreError as error:
                    log.warning("completions will be delivered later: %s", error)

    async def look(self, delay: float = 0.0) -> int:
        """Wake all idle sessions of this worker with completions, and return their number.

        Completions that arrive within ``delay`` seconds are included.
        """
        if not await self._store.read(lambda tx: tx.completions.waiting()):
            return 0
        await asyncio.sleep(delay)
        woken = await self._store.write(self._fold_in_completions)
        for session_id, key, address in woken:
            self._chats.start(self._chats.wake(session_id, key, address))
        return len(woken)

    def _fold_in_completions(self, tx: Transaction) -> list[tuple[SessionId, str, Address]]:
        """Queue completions for sessions whose chats are assigned to this worker or to none."""
        found = []
        for session_id in tx.completions.waiting():
            for binding in tx.bindings.of_session(session_id)[:1]:
                ours = binding.address.platform in self._platforms and claim_chat(tx, binding.key, self._chats.worker)
                if ours and queue_reports_if_idle(tx, session_id):
                    found.append((session_id, binding.key, binding.address))
        return found

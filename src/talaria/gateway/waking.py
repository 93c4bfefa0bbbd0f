"""What background work reports is told in the chat where its conversation is now, by the worker that keeps it."""

import asyncio
import logging
from collections.abc import Container

from talaria.contracts.store import Store, Transaction
from talaria.core.addresses import Address
from talaria.core.errors import StoreError
from talaria.core.ids import SessionId
from talaria.gateway.keepers import keep
from talaria.gateway.rooms import Rooms
from talaria.sessions.waking import GATHERING, WAKE, fold_in_at_rest

log = logging.getLogger(__name__)


class Waking:
    """Wakes the conversations of one worker; ``platforms`` are the networks that it serves."""

    def __init__(self, store: Store, rooms: Rooms, platforms: Container[str]) -> None:
        self._store = store
        self._rooms = rooms
        self._platforms = platforms

    async def serve(self) -> None:
        """Tell what is reported as it comes, until cancelled."""
        async with self._store.heeding(WAKE) as rung:
            while True:
                rung.clear()
                try:
                    await self.look(GATHERING)
                except StoreError as error:
                    log.warning("what was reported waits: %s", error)
                await rung.wait()

    async def look(self, gathering: float = 0.0) -> int:
        """Wake all conversations that have something to be told and rest here; return how many those are.

        What is reported ``gathering`` seconds behind that is told with it.
        """
        if not await self._store.read(lambda tx: tx.completions.waiting()):
            return 0
        await asyncio.sleep(gathering)
        told = await self._store.write(self._told)
        for session_id, key, address in told:
            self._rooms.start(self._rooms.wake(session_id, key, address))
        return len(told)

    def _told(self, tx: Transaction) -> list[tuple[SessionId, str, Address]]:
        """Put what was reported into the inboxes of conversations in rooms that are ours, or nobody's."""
        found = []
        for session_id in tx.completions.waiting():
            for binding in tx.bindings.of_session(session_id)[:1]:
                ours = binding.address.platform in self._platforms and keep(tx, binding.key, self._rooms.worker)
                if ours and fold_in_at_rest(tx, session_id):
                    found.append((session_id, binding.key, binding.address))
        return found

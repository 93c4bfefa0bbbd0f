"""Watch a conversation from elsewhere: what happens in its turns, from what was shown so far on."""

import asyncio
import logging
from collections.abc import Callable

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.events import Event
from talaria.core.errors import StoreError
from talaria.core.events import TurnBegan
from talaria.core.ids import SessionId, new_id
from talaria.sessions.live_events import SO_FAR, Seen, decode_telling
from talaria.sessions.live_words import LIVE, WATCHED_FOR, end_watch, forget_lapsed, keep_watch, stream_of

_RENEW = WATCHED_FOR.total_seconds() / 4

log = logging.getLogger(__name__)


class Watch:
    """Shows one conversation; ``seen`` is called with each event.

    Whoever comes in the middle of a turn gets all of it. A turn that another process goes on with begins again.
    """

    def __init__(self, store: Store, session_id: SessionId, seen: Callable[[Seen], None]) -> None:
        self._store = store
        self._session_id = session_id
        self._seen = seen
        self._id = new_id()
        self._seq = 0
        self._run = ""
        self._renewed = 0.0

    async def follow(self) -> None:
        """Show what happens until cancelled; a store that cannot be used is waited for."""
        stream = stream_of(self._session_id)
        async with self._store.heeding(stream) as rung:
            try:
                while True:
                    rung.clear()
                    try:
                        await self._look()
                    except StoreError as error:
                        log.info("session %s is not seen: %s", self._session_id, error)
                    await _until(rung, _RENEW)
            finally:
                await asyncio.shield(self._leave())

    async def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._renewed or now - self._renewed > _RENEW:
            known = await self._store.write(self._keep)
            self._renewed = now
            if not known:
                await self._store.hint(LIVE)
        for event in await self._store.read(lambda tx: tx.events.after(stream_of(self._session_id), self._seq)):
            self._show(event)

    def _keep(self, tx: Transaction) -> bool:
        """Go on watching; whoever was not known to watch is told of nothing that came before."""
        forget_lapsed(tx)
        known = keep_watch(tx, self._session_id, self._id)
        if not known:
            self._seq, self._run = tx.events.append(stream_of(self._session_id), []), ""
        return known

    def _show(self, event: Event) -> None:
        self._seq = event.seq
        telling = decode_telling(event.payload)
        if event.kind == SO_FAR:
            if telling.run == self._run:
                return  # it was for somebody who came later
        elif telling.run != self._run and not isinstance(next(iter(telling.events), None), TurnBegan):
            return  # what came before it is told in a moment
        self._run = telling.run
        for one in telling.events:
            self._seen(one)

    async def _leave(self) -> None:
        try:
            await self._store.write(lambda tx: end_watch(tx, self._session_id, self._id))
            await self._store.hint(LIVE)
        except StoreError as error:
            log.info("session %s counts as watched for a while: %s", self._session_id, error)


async def _until(rung: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await rung.wait()
    except TimeoutError:
        pass

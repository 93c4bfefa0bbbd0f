"""A place that wakes its conversation when something is reported to it, though nobody says anything."""

import asyncio
import logging

from talaria.core.errors import StoreError
from talaria.sessions.seat import Seat
from talaria.sessions.waking import GATHERING, WAKE, has_reports, tell

log = logging.getLogger(__name__)


async def listen(seat: Seat) -> None:
    """Tell the conversation that is open there what is reported, as it comes, until cancelled."""
    async with seat.store.heeding(WAKE) as rung:
        while True:
            rung.clear()
            try:
                await _look(seat)
            except StoreError as error:
                log.warning("what was reported waits: %s", error)
            await rung.wait()


async def _look(seat: Seat) -> None:
    if not seat.is_open or not await has_reports(seat.store, seat.session_id):
        return
    await asyncio.sleep(GATHERING)
    if seat.is_open:
        conversation = seat.chat.conversation
        if await tell(seat.store, conversation.session_id, seat.key):
            conversation.wake()

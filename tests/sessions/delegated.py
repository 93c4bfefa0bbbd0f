"""What tests of tasks that are handed on wait for."""

import asyncio
from collections.abc import Callable

from tests.commands.desk import Desk

from talaria.contracts.store import Transaction
from talaria.sessions.transcripts import PROGRAM
from talaria.sessions.waking import tell

_PATIENCE = 60.0
_LOOK_AGAIN = 0.02


async def until(desk: Desk, holds: Callable[[Transaction], bool]) -> None:
    """Wait until the store is as it should be."""
    async with asyncio.timeout(_PATIENCE):
        while not await desk.house.store.read(holds):  # noqa: ASYNC110 - the store tells nobody of what becomes true in it
            await asyncio.sleep(_LOOK_AGAIN)


async def woken(desk: Desk) -> str:
    """Wait until something is reported to the conversation that is open, let it be told, and return the words."""
    here = desk.seat.session_id
    async with asyncio.timeout(_PATIENCE):
        while not await _told(desk):
            if await tell(desk.house.store, here):
                desk.seat.chat.conversation.wake()
            await asyncio.sleep(_LOOK_AGAIN)
    await desk.seat.chat.conversation.settled()
    return "\n".join(await _told(desk))


async def _told(desk: Desk) -> list[str]:
    here = desk.seat.session_id
    stored = await desk.house.store.read(lambda tx: tx.messages.load(here))
    return [one.message.text for one in stored if one.message.author == PROGRAM]

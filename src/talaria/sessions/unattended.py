"""A conversation that nobody sits at: opened, worked off and closed."""

import asyncio
from contextlib import AsyncExitStack

from talaria.core.events import TurnEnd, TurnEvent
from talaria.sessions.chat import ChatWish
from talaria.sessions.seat import ChatOpener, Emit


def unheard(event: TurnEvent) -> None:
    """Let the steps of a turn pass: only its end counts."""


async def work_off_alone(
    opener: ChatOpener, wish: ChatWish, jobs: asyncio.TaskGroup, emit: Emit = unheard
) -> TurnEnd | None:
    """Take a turn for all that waits in a conversation, and return how the last one ended.

    Raises `Refused` while another process works on it. What is cut off here goes on with the next call, wherever.
    """
    async with AsyncExitStack() as stack:
        chat = await opener.open_chat(wish, emit, stack, jobs)
        return await chat.conversation.work_off()

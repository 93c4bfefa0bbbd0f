"""The event buffer for a slow client is bounded, and no text of the reply is lost."""

import asyncio

import pytest

from talaria.api.turns.turn import TurnEventQueue
from talaria.core.errors import Refused
from talaria.core.events import TextAdded, ToolProgressed, TurnAnswered, TurnEvent
from talaria.testing.wait import until


async def _rest(channel: TurnEventQueue) -> list[TurnEvent]:
    events = []
    while (event := await channel.get_next_event()) is not None:
        events.append(event)
    return events


@pytest.mark.slow
async def test_unread_text_events_are_joined() -> None:
    channel = TurnEventQueue()
    for _ in range(100_000):
        channel.put(TextAdded("ab"))
    assert len(channel) == 1
    channel.close()
    assert await _rest(channel) == [TextAdded("ab" * 100_000)]


async def test_only_tool_progress_is_dropped_for_a_slow_reader() -> None:
    channel = TurnEventQueue()
    for number in range(10_000):
        channel.put(ToolProgressed("call", f"line {number}"))
    channel.put(TextAdded("Done."))
    channel.put(TurnAnswered("Done."))
    assert len(channel) < 1_000
    channel.close()
    *_, text, end = await _rest(channel)
    assert (text, end) == (TextAdded("Done."), TurnAnswered("Done."))


async def test_fast_reader_gets_each_event_separately() -> None:
    channel = TurnEventQueue()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(_rest(channel))
        for word in "abc":
            channel.put(TextAdded(word))
            await until(lambda: not len(channel))
        channel.close()
    assert reading.result() == [TextAdded("a"), TextAdded("b"), TextAdded("c")]


async def test_error_is_raised_after_earlier_events() -> None:
    channel = TurnEventQueue()
    channel.put(TextAdded("So far."))
    channel.close(Refused("No more."))
    channel.put(TextAdded("Too late."))
    assert await channel.get_next_event() == TextAdded("So far.")
    with pytest.raises(Refused):
        await channel.get_next_event()

"""The buffer for a slow client is bounded, and nothing of the reply is lost."""

import asyncio

import pytest

from talaria.api.turns.turn import TurnEventQueue
from talaria.core.errors import Refused
from talaria.core.events import TextAdded, ToolProgressed, TurnAnswered, TurnEvent
from talaria.testing.wait import until


async def _rest(channel: TurnEventQueue) -> list[TurnEvent]:
    events = []
    while (event := await channel.next()) is not None:
        events.append(event)
    return events


@pytest.mark.slow
async def test_words_that_nobody_fetched_become_one_event() -> None:
    channel = TurnEventQueue()
    for _ in range(100_000):
        channel.put(TextAdded("ab"))
    assert len(channel) == 1
    channel.close()
    assert await _rest(channel) == [TextAdded("ab" * 100_000)]


async def test_what_a_tool_shows_is_left_out_where_the_reader_is_too_slow_and_nothing_else() -> None:
    channel = TurnEventQueue()
    for number in range(10_000):
        channel.put(ToolProgressed("call", f"line {number}"))
    channel.put(TextAdded("Done."))
    channel.put(TurnAnswered("Done."))
    assert len(channel) < 1_000
    channel.close()
    *_, words, end = await _rest(channel)
    assert (words, end) == (TextAdded("Done."), TurnAnswered("Done."))


async def test_a_reader_that_keeps_up_gets_each_event_by_itself() -> None:
    channel = TurnEventQueue()
    async with asyncio.TaskGroup() as group:
        reading = group.create_task(_rest(channel))
        for word in "abc":
            channel.put(TextAdded(word))
            await until(lambda: not len(channel))
        channel.close()
    assert reading.result() == [TextAdded("a"), TextAdded("b"), TextAdded("c")]


async def test_an_error_comes_after_what_was_put_before_it() -> None:
    channel = TurnEventQueue()
    channel.put(TextAdded("So far."))
    channel.close(Refused("No more."))
    channel.put(TextAdded("Too late."))
    assert await channel.next() == TextAdded("So far.")
    with pytest.raises(Refused):
        await channel.next()

"""Live hub: queues and snapshots of slow browsers."""

import asyncio
import json
from functools import partial
from typing import Any

from talaria.contracts.store import Store
from talaria.contracts.stores.sessions import NewSession
from talaria.core.events import TextAdded, TurnBegan
from talaria.core.ids import TurnId
from talaria.http.fan_out import MAX_QUEUED
from talaria.testing.wait import LIMIT, until
from talaria.web.front_door import WebCaller
from talaria.web.hub import BrowserStream, LiveHub

PIECE = MAX_QUEUED // 4


async def test_a_slow_browser_has_a_bounded_queue_and_gets_a_snapshot(store: Store) -> None:
    session = await store.write(lambda tx: tx.sessions.create(NewSession(source="web")))
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as jobs:
        hub = LiveHub(store, jobs)
        stream = hub.open_stream("slow", WebCaller())
        hub.set_sessions(stream, [session.id], ())
        channel = hub.get_channel(session.id)
        channel.publish(TurnBegan(TurnId("t"), text="Go"))
        for number in range(12):
            channel.publish(TextAdded(f"{number:x}" * PIECE))
            expected = min((number + 1) * PIECE, MAX_QUEUED)
            await until(partial(_has_queued, stream, expected))
        hub.set_sessions(hub.open_stream("other", WebCaller()), [session.id], ())  # sends the joined events now
        assert stream.is_slow
        assert stream.queued < MAX_QUEUED + 2 * PIECE
        pieces = aiter(stream)
        first, rest = await anext(pieces), await anext(pieces)
        assert _read(first)[-1]["snapshot"] is False
        (snapshot,) = [one for one in _read(rest) if one["snapshot"]]
        text = "".join(event["text"] for event in snapshot["events"] if event["type"] == "text")
        assert text == "".join(f"{number:x}" * PIECE for number in range(12))
        hub.close()


async def test_first_text_of_a_reply_is_sent_at_once(store: Store) -> None:
    """Events just before it don't delay it; text that follows immediately is joined."""
    session = await store.write(lambda tx: tx.sessions.create(NewSession(source="web")))
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as jobs:
        hub = LiveHub(store, jobs)
        stream = hub.open_stream("one", WebCaller())
        hub.set_sessions(stream, [session.id], ())
        channel = hub.get_channel(session.id)
        channel.publish(TurnBegan(TurnId("t"), text="Go"))
        channel.publish(TextAdded("Hello"))
        sent = _read(await anext(aiter(stream)))
        assert [event["type"] for one in sent for event in one["events"]] == ["began", "text"]
        hub.close()


async def test_events_in_a_snapshot_are_not_sent_again(store: Store) -> None:
    session = await store.write(lambda tx: tx.sessions.create(NewSession(source="web")))
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as jobs:
        hub = LiveHub(store, jobs)
        stream = hub.open_stream("one", WebCaller())
        hub.set_sessions(stream, [session.id], ())
        channel = hub.get_channel(session.id)
        channel.publish(TurnBegan(TurnId("t"), text="Go"))
        for word in ("one ", "two ", "three"):  # the later ones wait for a tick
            channel.publish(TextAdded(word))
        hub.set_sessions(stream, [session.id], [session.id])
        hub.set_sessions(hub.open_stream("other", WebCaller()), [session.id], ())  # sends the joined events now
        last = _read(await anext(aiter(stream)))[-1]
        assert last["snapshot"]
        assert "".join(event["text"] for event in last["events"] if event["type"] == "text") == "one two three"
        hub.close()


def _has_queued(stream: BrowserStream, size: int) -> bool:
    return stream.queued >= size


def _read(data: bytes) -> list[Any]:
    return [json.loads(line.removeprefix(b"data: ")) for line in data.split(b"\n\n") if line]

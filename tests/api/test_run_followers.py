"""Followers of one run: all of them get every event once, also those that start late."""

import asyncio

from talaria.api.runs.events import make_stream_name
from talaria.api.runs.run_store import RunEventStreams
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.responses import ApiRun
from talaria.contracts.stores.sessions import NewSession

RUN, EVENTS, FOLLOWERS = "run_x", 40, 25


def _begin(tx: Transaction) -> None:
    session = tx.sessions.create(NewSession(source="api"))
    tx.runs.create(ApiRun(id=RUN, session_id=session.id, request="{}"))


async def _follow(streams: RunEventStreams) -> list[str]:
    seen: list[str] = []
    events = streams.follow(RUN)
    async for page in events:
        seen += [one.payload for one in page]
        if len(seen) == EVENTS:
            break
    await events.close()
    return seen


async def test_every_follower_gets_every_event_once(store: Store) -> None:
    await store.write(_begin)
    streams = RunEventStreams(store)

    def add(tx: Transaction, number: int) -> None:
        tx.notify(make_stream_name(RUN))
        tx.events.append(make_stream_name(RUN), [("text", str(number))])

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        followers = [group.create_task(_follow(streams)) for _ in range(FOLLOWERS)]
        for number in range(EVENTS):
            await store.write(lambda tx, number=number: add(tx, number))  # type: ignore[misc]
        followers += [group.create_task(_follow(streams)) for _ in range(FOLLOWERS)]
    expected = list(map(str, range(EVENTS)))
    assert all(one.result() == expected for one in followers)

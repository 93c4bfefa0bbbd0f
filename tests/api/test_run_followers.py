"""Followers of one run: all of them get every event once, also those that start late or read slowly."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from talaria.api.runs.events import RunStopped, make_stream_name
from talaria.api.runs.followers import RunFollower, RunFollowers, RunPage
from talaria.api.runs.run_store import end_run
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.responses import ApiRun
from talaria.contracts.stores.sessions import NewSession
from talaria.core.errors import StoreError
from talaria.http.fan_out import MAX_QUEUED
from talaria.testing.wait import LIMIT, until

RUN, EVENTS, FOLLOWERS = "run_x", 40, 25


def _begin(tx: Transaction) -> None:
    session = tx.sessions.create(NewSession(source="api"))
    tx.runs.create(ApiRun(id=RUN, session_id=session.id, request="{}"))


async def _add(store: Store, *payloads: str) -> None:
    def work(tx: Transaction) -> None:
        tx.notify(make_stream_name(RUN))
        tx.events.append(make_stream_name(RUN), [("text", payload) for payload in payloads])

    await store.write(work)


async def _end(store: Store) -> None:
    def work(tx: Transaction) -> None:
        run = tx.runs.get(RUN)
        assert run is not None
        end_run(tx, run, RunStopped())

    await store.write(work)


async def _follow(followers: RunFollowers, after: int = 0) -> list[str]:
    follower = followers.follow(RUN, after)
    seen = [one.payload async for page in follower for one in page.events]
    await follower.close()
    assert follower.is_over
    return seen


@asynccontextmanager
async def _followers(store: Store) -> AsyncIterator[RunFollowers]:
    await store.write(_begin)
    async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as jobs:
        found = RunFollowers(store, jobs)
        yield found
        found.dismiss()


async def test_every_follower_gets_every_event_once(store: Store) -> None:
    async with _followers(store) as followers, asyncio.TaskGroup() as group:
        tasks = [group.create_task(_follow(followers)) for _ in range(FOLLOWERS)]
        for number in range(EVENTS):
            await _add(store, str(number))
        tasks += [group.create_task(_follow(followers)) for _ in range(FOLLOWERS)]
        later = [group.create_task(_follow(followers, after=30)) for _ in range(FOLLOWERS)]
        await _end(store)
        later += [group.create_task(_follow(followers, after=EVENTS)) for _ in range(FOLLOWERS)]
    expected = [*map(str, range(EVENTS)), '{"type":"run.stopped"}']
    assert all(one.result() == expected for one in tasks)
    assert [one.result() for one in later] == [expected[30:]] * FOLLOWERS + [expected[-1:]] * FOLLOWERS


async def test_slow_reader_has_a_bounded_queue_and_misses_no_event(store: Store) -> None:
    long = "x" * (MAX_QUEUED // 4)
    async with _followers(store) as followers, asyncio.TaskGroup() as group:
        follower = followers.follow(RUN)
        pages = aiter(follower)
        reading = group.create_task(_read_page(pages))
        await until(lambda: follower.is_joined)
        added: list[str] = []
        while follower.is_joined:
            added.append(f"{long}{len(added)}")
            await _add(store, added[-1])
            await until(lambda: follower.position >= len(added) or not follower.is_joined)
        assert follower.is_slow
        await _add(store, "read from the store")
        await _end(store)
        seen = [one.payload for one in (await reading).events]
        seen += [one.payload async for page in pages for one in page.events]
        await follower.close()
    assert seen == [*added, "read from the store", '{"type":"run.stopped"}']


async def test_followers_are_disconnected_before_the_end(store: Store) -> None:
    async with _followers(store) as followers:
        follower = followers.follow(RUN)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(anext(aiter(follower), None))
            await until(lambda: follower.is_joined)
            followers.dismiss()
        assert reading.result() is None
        assert not follower.is_over
        assert [page async for page in followers.follow(RUN)] == []


async def test_a_failing_store_ends_the_stream_with_its_error(store: Store) -> None:
    async with _followers(store) as followers:
        follower = followers.follow(RUN)
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(_expect_error(follower))
            await until(lambda: follower.is_joined)
            await store.close()
        assert isinstance(reading.result(), StoreError)


async def _read_page(pages: AsyncIterator[RunPage]) -> RunPage:
    return await anext(pages)


async def _expect_error(follower: RunFollower) -> StoreError | None:
    try:
        await anext(aiter(follower))
    except StoreError as error:
        return error
    return None

"""The agent cache: hits, eviction of idle agents, never during a turn."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest
from msgspec import structs

from talaria.runtime.agent_cache import CAP, IDLE_LIMIT, AgentCache, AgentSignature
from talaria.testing.clock import NOON, SettableClock
from talaria.testing.wait import LIMIT

PARTS = AgentSignature(
    model="large",
    provider="mine",
    base_url="https://model.test/v1",
    api_mode="chat",
    api_key="sk-proj-one",
    toolsets=("files", "web"),
    extras="Be brief.",
)

# As it was computed by another process: what is kept under it must be found again.
SIGNATURE = "3ee2e0a85eebb679970d6cdec7375f312c0dd998199829613b08cf7c0d24e8f2"


class Kept:
    """Implements `CachedAgent`: keeps what was done to it."""

    def __init__(
        self, name: str = "", signature: str = "same", *, active_at: datetime | None = NOON, busy: bool = False
    ) -> None:
        self.name = name
        self.signature = signature
        self.active_at = active_at
        self.is_busy = busy
        self.fate: list[str] = []
        self.may_go = asyncio.Event()
        self.may_go.set()

    async def release_clients(self) -> None:
        await self.may_go.wait()
        assert not self.is_busy
        self.fate.append("released")

    async def close(self) -> None:
        assert not self.is_busy
        self.fate.append("closed")


class House:
    """A cache with what it may keep, by key."""

    def __init__(self, cache: AgentCache[Kept], clock: SettableClock) -> None:
        self.cache = cache
        self.clock = clock
        self.built: list[Kept] = []

    async def get(self, key: str, signature: str = "same", **values: bool) -> Kept:
        async def build() -> Kept:
            self.built.append(Kept(key, signature, active_at=self.clock.now(), **values))
            return self.built[-1]

        return await self.cache.get(key, signature, build)

    async def never(self) -> Kept:
        raise AssertionError

    @property
    def keys(self) -> list[str]:
        return [agent.name for agent in self.built if self.cache.find(agent.name) is agent]


@asynccontextmanager
async def cache_of(cap: int = CAP, idle: timedelta = IDLE_LIMIT) -> AsyncIterator[House]:
    """Open a cache; when the block ends, all evictions are complete."""
    clock = SettableClock()
    async with asyncio.TaskGroup() as jobs:
        yield House(AgentCache(jobs, cap=cap, idle=idle, clock=clock), clock)


async def settled() -> None:
    """Let tasks that wait for nothing run to their end."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_the_defaults_are_those_that_were_promised() -> None:
    assert CAP == 128
    assert IDLE_LIMIT.total_seconds() == 3600


def test_a_signature_is_the_same_for_the_same_parts_in_every_process() -> None:
    again = structs.replace(PARTS, toolsets=("web", "files"))
    computed = PARTS.signature()
    assert computed == SIGNATURE
    assert again.signature() == computed
    assert "sk-proj" not in PARTS.signature()


@pytest.mark.parametrize(
    "change",
    [
        {"model": "small"},
        {"provider": "yours"},
        {"base_url": "https://other.test/v1"},
        {"api_mode": "responses"},
        {"api_key": "sk-proj-two"},
        {"api_key": "sk-proj-one "},
        {"toolsets": ("files",)},
        {"extras": "Be long."},
        {"model": "large\x00mine", "provider": ""},
    ],
    ids=str,
)
def test_each_part_changes_the_signature(change: dict[str, str]) -> None:
    assert structs.replace(PARTS, **change).signature() != PARTS.signature()


def test_parts_that_flow_into_each_other_have_signatures_of_their_own() -> None:
    one, other = AgentSignature(model="ab", provider="c"), AgentSignature(model="a", provider="bc")
    assert one.signature() != other.signature()


async def test_a_hit_is_the_very_same_agent_and_becomes_the_most_recently_used() -> None:
    async with cache_of(cap=2) as application:
        first = await application.get("a")
        await application.get("b")
        assert await application.get("a") is first
        await application.get("c")
        assert application.keys == ["a", "c"]
    assert [agent.fate for agent in application.built] == [[], ["released"], []]


async def test_another_signature_releases_the_old_one_softly_and_builds_again() -> None:
    async with cache_of() as application:
        old = await application.get("a", "one")
        new = await application.get("a", "two")
        assert new is not old
        assert len(application.cache) == 1
    assert (old.fate, new.fate) == (["released"], [])


async def test_without_a_signature_any_agent_will_do() -> None:
    async with cache_of() as application:
        old = await application.get("a", "one")
        assert await application.cache.get("a", None, application.never) is old


async def test_an_agent_that_cannot_be_built_leaves_nothing_behind() -> None:
    async def fail() -> Kept:
        raise ConnectionError

    async with cache_of() as application:
        with pytest.raises(ConnectionError):
            await application.cache.get("a", "same", fail)
        assert "a" not in application.cache
        assert (await application.get("a")).name == "a"


async def test_of_those_above_the_cap_only_idle_ones_go_and_no_newer_one_instead() -> None:
    async with cache_of(cap=3) as application:
        busy = await application.get("a", busy=True)
        for key in "bcd":
            await application.get(key)
        assert application.keys == ["a", "b", "c", "d"]
        await application.get("e")
        assert application.keys == ["a", "c", "d", "e"]
        busy.is_busy = False
        application.cache.settle()
        assert application.keys == ["c", "d", "e"]


async def test_when_all_that_could_go_are_busy_the_cap_is_passed_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "talaria.runtime.agent_cache")
    async with cache_of(cap=2) as application:
        for key in "abc":
            await application.get(key, busy=True)
        assert len(application.cache) == 3
        assert "mid-turn" in caplog.text
        for agent in application.built:
            agent.is_busy = False
        application.cache.settle()
        assert application.keys == ["b", "c"]


async def test_a_sweep_lets_go_of_the_idle_and_says_how_many() -> None:
    async with cache_of() as application:
        for key in "abc":
            await application.get(key)
        busy, unknown = await application.get("busy", busy=True), await application.get("unknown")
        unknown.active_at = None
        application.clock.advance(timedelta(seconds=3600))
        assert application.cache.sweep() == 0
        await application.get("b")
        application.clock.advance(timedelta(seconds=1))
        assert application.cache.sweep() == 2
        assert application.keys == ["b", "busy", "unknown"]
        busy.is_busy = False
        assert application.cache.sweep() == 1
        assert application.cache.sweep() == 0
    assert [agent.fate for agent in application.built] == [["released"], [], ["released"], ["released"], []]


async def test_activity_of_its_own_keeps_an_agent() -> None:
    async with cache_of() as application:
        agent = await application.get("a")
        application.clock.advance(timedelta(hours=2))
        agent.active_at = application.clock.now() - timedelta(minutes=1)
        assert application.cache.sweep() == 0


async def test_an_agent_that_is_being_built_is_not_busy_for_others() -> None:
    resume, building = asyncio.Event(), asyncio.Event()

    async def slowly() -> Kept:
        building.set()
        await resume.wait()
        return Kept("slow")

    async with cache_of(cap=1) as application, asyncio.TaskGroup() as group:
        slow = group.create_task(application.cache.get("slow", "same", slowly))
        await building.wait()
        await application.get("a")
        await application.get("b")
        assert application.keys == ["b"]
        resume.set()
        assert (await slow).name == "slow"
        assert len(application.cache) == 1


async def test_parallel_requests_share_one_agent() -> None:
    async with cache_of() as application:

        async def build() -> Kept:
            await asyncio.sleep(0)
            application.built.append(Kept("a"))
            return application.built[-1]

        found = await asyncio.gather(*(application.cache.get("a", "same", build) for _ in range(50)))
        assert len(set(map(id, found))) == len(application.built) == 1


async def test_different_signatures_at_once_lose_no_agent() -> None:
    async with cache_of() as application:
        await asyncio.gather(*(application.get("a", f"signature {number % 7}") for number in range(60)))
        assert len(application.cache) == 1
    assert [agent.fate for agent in application.built] == [["released"]] * (len(application.built) - 1) + [[]]


async def test_explicit_eviction_is_soft_and_leaves_other_sessions_alone() -> None:
    async with cache_of() as application:
        first, other = await application.get("a"), await application.get("b")
        assert application.cache.evict("a")
        assert not application.cache.evict("a")
        assert await application.get("a") is not first
        assert await application.get("b") is other
    assert (first.fate, other.fate) == (["released"], [])


async def test_the_end_of_a_session_closes_its_agent() -> None:
    async with cache_of() as application:
        agent, other = await application.get("a"), await application.get("b")
        assert application.cache.end("a")
        assert not application.cache.end("a")
    assert (agent.fate, other.fate) == (["closed"], [])


@pytest.mark.parametrize(("way", "fate"), [("evict", "released"), ("end", "closed")])
async def test_what_is_evicted_during_its_turn_goes_when_that_is_over(way: str, fate: str) -> None:
    async with cache_of() as application:
        agent = await application.get("a", busy=True)
        getattr(application.cache, way)("a")
        await settled()
        assert agent.fate == []
        assert await application.get("a") is not agent
        agent.is_busy = False
        application.cache.sweep()
        await settled()
        assert agent.fate == [fate]


async def test_what_is_evicted_before_it_is_built_serves_its_turn_and_goes() -> None:
    application: House
    async with cache_of() as application:

        async def build() -> Kept:
            assert application.cache.evict("a")
            return Kept("a")

        async with application.cache.using("a", "same", build) as agent:
            assert "a" not in application.cache
            await settled()
            assert agent.fate == []
        await settled()
        assert agent.fate == ["released"]


async def test_an_agent_that_is_lent_counts_as_busy() -> None:
    async with cache_of(cap=1) as application:

        async def build() -> Kept:
            return Kept("a")

        async with application.cache.using("a", "same", build) as agent:
            application.clock.advance(timedelta(days=1))
            await application.get("b")
            application.cache.sweep()
            await settled()
            assert (agent.fate, len(application.cache)) == ([], 2)
        await settled()
        assert (agent.fate, len(application.cache)) == (["released"], 1)


async def test_releasing_holds_up_nobody() -> None:
    async with cache_of(cap=1) as application:
        slow = await application.get("slow")
        slow.may_go.clear()
        async with asyncio.timeout(LIMIT):
            assert (await application.get("a")).name == "a"
            assert (await application.get("b")).name == "b"
        assert slow.fate == []
        slow.may_go.set()
    assert slow.fate == ["released"]


async def test_a_failed_release_is_logged_and_ends_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Kept):
        async def release_clients(self) -> None:
            raise RuntimeError(self.name)

    async def build() -> Kept:
        return Broken("broken")

    async with cache_of() as application:
        await application.cache.get("broken", "same", build)
        application.cache.evict("broken")
        await settled()
        assert (await application.get("a")).name == "a"
    assert "couldn't release an agent cleanly" in caplog.text


async def test_a_thousand_turns_at_once_settle_at_the_cap() -> None:
    chance = random.Random(11)
    async with cache_of(cap=16) as application:

        async def turn(number: int) -> None:
            key = f"k{chance.randrange(200)}"

            async def let_others_run(times: int) -> None:
                for _ in range(chance.randrange(times)):
                    await asyncio.sleep(0)

            async def build() -> Kept:
                await let_others_run(4)
                application.built.append(Kept(key, f"s{number % 2}"))
                return application.built[-1]

            async with application.cache.using(key, f"s{number % 2}", build) as agent:
                assert agent.name == key
                assert agent.fate == []
                await let_others_run(20)
                assert agent.fate == []

        async with asyncio.TaskGroup() as group:
            for number in range(1000):
                group.create_task(turn(number))
        assert len(application.cache) == 16
    assert sum(not agent.fate for agent in application.built) == 16
    assert all(agent.fate in ([], ["released"]) for agent in application.built)

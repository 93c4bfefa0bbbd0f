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

# As computed by another process: entries stored under it must be found again.
SIGNATURE = "3ee2e0a85eebb679970d6cdec7375f312c0dd998199829613b08cf7c0d24e8f2"


class FakeAgent:
    """Implements `CachedAgent`: records its release and close."""

    def __init__(
        self, name: str = "", signature: str = "same", *, active_at: datetime | None = NOON, busy: bool = False
    ) -> None:
        self.name = name
        self.signature = signature
        self.active_at = active_at
        self.is_busy = busy
        self.fate: list[str] = []
        self.may_release = asyncio.Event()
        self.may_release.set()

    async def release_clients(self) -> None:
        await self.may_release.wait()
        assert not self.is_busy
        self.fate.append("released")

    async def close(self) -> None:
        assert not self.is_busy
        self.fate.append("closed")


class CacheFixture:
    """A cache, its clock and the agents that were built for it."""

    def __init__(self, cache: AgentCache[FakeAgent], clock: SettableClock) -> None:
        self.cache = cache
        self.clock = clock
        self.built: list[FakeAgent] = []

    async def get(self, key: str, signature: str = "same", **values: bool) -> FakeAgent:
        async def build() -> FakeAgent:
            self.built.append(FakeAgent(key, signature, active_at=self.clock.now(), **values))
            return self.built[-1]

        return await self.cache.get(key, signature, build)

    async def never(self) -> FakeAgent:
        raise AssertionError

    @property
    def keys(self) -> list[str]:
        return [agent.name for agent in self.built if self.cache.find(agent.name) is agent]


@asynccontextmanager
async def cache_of(cap: int = CAP, idle: timedelta = IDLE_LIMIT) -> AsyncIterator[CacheFixture]:
    """Open a cache; when the block ends, all evictions are complete."""
    clock = SettableClock()
    async with asyncio.TaskGroup() as jobs:
        yield CacheFixture(AgentCache(jobs, cap=cap, idle=idle, clock=clock), clock)


async def run_ready_tasks() -> None:
    """Let tasks that wait for nothing run to their end."""
    for _ in range(5):
        await asyncio.sleep(0)


def test_default_cap_and_idle_limit_are_as_documented() -> None:
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


def test_adjacent_parts_are_separated_in_the_signature() -> None:
    one, other = AgentSignature(model="ab", provider="c"), AgentSignature(model="a", provider="bc")
    assert one.signature() != other.signature()


async def test_cache_hit_returns_the_same_agent_as_most_recently_used() -> None:
    async with cache_of(cap=2) as fixture:
        first = await fixture.get("a")
        await fixture.get("b")
        assert await fixture.get("a") is first
        await fixture.get("c")
        assert fixture.keys == ["a", "c"]
    assert [agent.fate for agent in fixture.built] == [[], ["released"], []]


async def test_changed_signature_releases_the_old_agent_and_builds_a_new_one() -> None:
    async with cache_of() as fixture:
        old = await fixture.get("a", "one")
        new = await fixture.get("a", "two")
        assert new is not old
        assert len(fixture.cache) == 1
    assert (old.fate, new.fate) == (["released"], [])


async def test_lookup_without_a_signature_returns_any_agent() -> None:
    async with cache_of() as fixture:
        old = await fixture.get("a", "one")
        assert await fixture.cache.get("a", None, fixture.never) is old


async def test_failed_build_leaves_no_cache_entry() -> None:
    async def fail() -> FakeAgent:
        raise ConnectionError

    async with cache_of() as fixture:
        with pytest.raises(ConnectionError):
            await fixture.cache.get("a", "same", fail)
        assert "a" not in fixture.cache
        assert (await fixture.get("a")).name == "a"


async def test_cache_over_its_cap_evicts_the_oldest_idle_agents_only() -> None:
    async with cache_of(cap=3) as fixture:
        busy = await fixture.get("a", busy=True)
        for key in "bcd":
            await fixture.get(key)
        assert fixture.keys == ["a", "b", "c", "d"]
        await fixture.get("e")
        assert fixture.keys == ["a", "c", "d", "e"]
        busy.is_busy = False
        fixture.cache.settle()
        assert fixture.keys == ["c", "d", "e"]


async def test_cache_of_busy_agents_exceeds_its_cap_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "talaria.runtime.agent_cache")
    async with cache_of(cap=2) as fixture:
        for key in "abc":
            await fixture.get(key, busy=True)
        assert len(fixture.cache) == 3
        assert "mid-turn" in caplog.text
        for agent in fixture.built:
            agent.is_busy = False
        fixture.cache.settle()
        assert fixture.keys == ["b", "c"]


async def test_sweep_evicts_idle_agents_and_returns_their_number() -> None:
    async with cache_of() as fixture:
        for key in "abc":
            await fixture.get(key)
        busy, unknown = await fixture.get("busy", busy=True), await fixture.get("unknown")
        unknown.active_at = None
        fixture.clock.advance(timedelta(seconds=3600))
        assert fixture.cache.sweep() == 0
        await fixture.get("b")
        fixture.clock.advance(timedelta(seconds=1))
        assert fixture.cache.sweep() == 2
        assert fixture.keys == ["b", "busy", "unknown"]
        busy.is_busy = False
        assert fixture.cache.sweep() == 1
        assert fixture.cache.sweep() == 0
    assert [agent.fate for agent in fixture.built] == [["released"], [], ["released"], ["released"], []]


async def test_recently_active_agent_is_not_evicted() -> None:
    async with cache_of() as fixture:
        agent = await fixture.get("a")
        fixture.clock.advance(timedelta(hours=2))
        agent.active_at = fixture.clock.now() - timedelta(minutes=1)
        assert fixture.cache.sweep() == 0


async def test_slow_build_does_not_block_other_keys() -> None:
    resume, building = asyncio.Event(), asyncio.Event()

    async def slowly() -> FakeAgent:
        building.set()
        await resume.wait()
        return FakeAgent("slow")

    async with cache_of(cap=1) as fixture, asyncio.TaskGroup() as group:
        slow = group.create_task(fixture.cache.get("slow", "same", slowly))
        await building.wait()
        await fixture.get("a")
        await fixture.get("b")
        assert fixture.keys == ["b"]
        resume.set()
        assert (await slow).name == "slow"
        assert len(fixture.cache) == 1


async def test_parallel_requests_share_one_agent() -> None:
    async with cache_of() as fixture:

        async def build() -> FakeAgent:
            await asyncio.sleep(0)
            fixture.built.append(FakeAgent("a"))
            return fixture.built[-1]

        found = await asyncio.gather(*(fixture.cache.get("a", "same", build) for _ in range(50)))
        assert len(set(map(id, found))) == len(fixture.built) == 1


async def test_different_signatures_at_once_lose_no_agent() -> None:
    async with cache_of() as fixture:
        await asyncio.gather(*(fixture.get("a", f"signature {number % 7}") for number in range(60)))
        assert len(fixture.cache) == 1
    assert [agent.fate for agent in fixture.built] == [["released"]] * (len(fixture.built) - 1) + [[]]


async def test_explicit_eviction_is_soft_and_leaves_other_sessions_alone() -> None:
    async with cache_of() as fixture:
        first, other = await fixture.get("a"), await fixture.get("b")
        assert fixture.cache.evict("a")
        assert not fixture.cache.evict("a")
        assert await fixture.get("a") is not first
        assert await fixture.get("b") is other
    assert (first.fate, other.fate) == (["released"], [])


async def test_the_end_of_a_session_closes_its_agent() -> None:
    async with cache_of() as fixture:
        agent, other = await fixture.get("a"), await fixture.get("b")
        assert fixture.cache.end("a")
        assert not fixture.cache.end("a")
    assert (agent.fate, other.fate) == (["closed"], [])


@pytest.mark.parametrize(("way", "fate"), [("evict", "released"), ("end", "closed")])
async def test_agent_evicted_during_its_turn_is_released_afterwards(way: str, fate: str) -> None:
    async with cache_of() as fixture:
        agent = await fixture.get("a", busy=True)
        getattr(fixture.cache, way)("a")
        await run_ready_tasks()
        assert agent.fate == []
        assert await fixture.get("a") is not agent
        agent.is_busy = False
        fixture.cache.sweep()
        await run_ready_tasks()
        assert agent.fate == [fate]


async def test_agent_evicted_while_being_built_serves_its_turn_then_is_released() -> None:
    fixture: CacheFixture
    async with cache_of() as fixture:

        async def build() -> FakeAgent:
            assert fixture.cache.evict("a")
            return FakeAgent("a")

        async with fixture.cache.using("a", "same", build) as agent:
            assert "a" not in fixture.cache
            await run_ready_tasks()
            assert agent.fate == []
        await run_ready_tasks()
        assert agent.fate == ["released"]


async def test_agent_in_use_counts_as_busy() -> None:
    async with cache_of(cap=1) as fixture:

        async def build() -> FakeAgent:
            return FakeAgent("a")

        async with fixture.cache.using("a", "same", build) as agent:
            fixture.clock.advance(timedelta(days=1))
            await fixture.get("b")
            fixture.cache.sweep()
            await run_ready_tasks()
            assert (agent.fate, len(fixture.cache)) == ([], 2)
        await run_ready_tasks()
        assert (agent.fate, len(fixture.cache)) == (["released"], 1)


async def test_slow_release_does_not_block_the_cache() -> None:
    async with cache_of(cap=1) as fixture:
        slow = await fixture.get("slow")
        slow.may_release.clear()
        async with asyncio.timeout(LIMIT):
            assert (await fixture.get("a")).name == "a"
            assert (await fixture.get("b")).name == "b"
        assert slow.fate == []
        slow.may_release.set()
    assert slow.fate == ["released"]


async def test_failed_release_is_logged_and_affects_no_other_agent(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(FakeAgent):
        async def release_clients(self) -> None:
            raise RuntimeError(self.name)

    async def build() -> FakeAgent:
        return Broken("broken")

    async with cache_of() as fixture:
        await fixture.cache.get("broken", "same", build)
        fixture.cache.evict("broken")
        await run_ready_tasks()
        assert (await fixture.get("a")).name == "a"
    assert "couldn't release an agent cleanly" in caplog.text


async def test_a_thousand_turns_at_once_settle_at_the_cap() -> None:
    chance = random.Random(11)
    async with cache_of(cap=16) as fixture:

        async def turn(number: int) -> None:
            key = f"k{chance.randrange(200)}"

            async def let_others_run(times: int) -> None:
                for _ in range(chance.randrange(times)):
                    await asyncio.sleep(0)

            async def build() -> FakeAgent:
                await let_others_run(4)
                fixture.built.append(FakeAgent(key, f"s{number % 2}"))
                return fixture.built[-1]

            async with fixture.cache.using(key, f"s{number % 2}", build) as agent:
                assert agent.name == key
                assert agent.fate == []
                await let_others_run(20)
                assert agent.fate == []

        async with asyncio.TaskGroup() as group:
            for number in range(1000):
                group.create_task(turn(number))
        assert len(fixture.cache) == 16
    assert sum(not agent.fate for agent in fixture.built) == 16
    assert all(agent.fate in ([], ["released"]) for agent in fixture.built)

"""Goals after crashes at any point: no step is repeated, and none is lost."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.agent.agent_fixture import AgentSession, open_agent_session
from tests.app import warm_program
from tests.app.warm_program import WarmProcess
from tests.goals.goal_fixture import DONE, JUDGE, NOT_YET
from tests.runtime.scripted_runner import run_pending_turns
from tests.storage.engines import StoreLocation

from talaria.contracts.store import Store, Subscription, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.turns import TurnLog
from talaria.core.errors import StoreBusy
from talaria.core.events import Noticed, TurnEnd
from talaria.core.messages import Usage
from talaria.goals.follower import GoalFollower, Judge, JudgeModel
from talaria.goals.goal_manager import GoalManager
from talaria.http_client.client import HttpPool
from talaria.testing.clock import SettableClock
from talaria.testing.model_server import Answer, ModelServer, Received, Say
from talaria.testing.wait import LIMIT

T = TypeVar("T")
STEPS = 4
MANY_STEPS = 18
WAIT = '{"verdict": "wait", "reason": "It builds.", "wait_seconds": 0.001}'


@pytest.fixture
def store_location(new_store_location: StoreLocation) -> StoreLocation:
    """A store that no process has opened yet, on each engine in turn."""
    return new_store_location


@pytest.fixture
async def agent_session(tmp_path: Path) -> AsyncIterator[AgentSession]:
    async with open_agent_session(tmp_path) as agent_session:
        yield agent_session


@pytest.fixture
async def shop_on_any_engine(store: Store, tmp_path: Path) -> AsyncIterator[AgentSession]:
    http = HttpPool()
    async with ModelServer() as server:
        session = await store.write(lambda tx: tx.sessions.create(NewSession(source="test")))
        yield AgentSession(server, store, http, session.id, tmp_path)
    await http.close()


class FaultyStore:
    """A store whose first operations fail."""

    def __init__(self, store: Store, faults: int) -> None:
        self._store = store
        self._faults = faults

    async def read(self, work: Callable[[Transaction], T]) -> T:
        self._fail()
        return await self._store.read(work)

    async def write(self, work: Callable[[Transaction], T]) -> T:
        self._fail()
        return await self._store.write(work)

    async def close(self) -> None:
        """Leave the store to its owner."""

    def subscribe(self, *topics: str) -> AbstractAsyncContextManager[Subscription]:
        return self._store.subscribe(*topics)

    def _fail(self) -> None:
        self._faults -= 1
        if self._faults >= 0:
            raise StoreBusy("another process has it")


class CancellingStore(FaultyStore):
    """A store that cancels ``task`` after its first write."""

    task: asyncio.Task[bool]

    async def write(self, work: Callable[[Transaction], T]) -> T:
        result = await super().write(work)
        self.task.cancel()
        await asyncio.sleep(0)
        return result


class Interruption:
    """A store and a model that interrupt their caller once: before the operation, or after it."""

    def __init__(self, store: Store, at: int, *, when_done: bool) -> None:
        self._store = store
        self._left = at
        self._when_done = when_done

    @property
    def has_happened(self) -> bool:
        return self._left <= 0

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._guarded(partial(self._store.read, work))

    async def write(self, work: Callable[[Transaction], T]) -> T:
        return await self._guarded(partial(self._store.write, work))

    async def close(self) -> None:
        """Leave the store to its owner."""

    def subscribe(self, *topics: str) -> AbstractAsyncContextManager[Subscription]:
        return self._store.subscribe(*topics)

    async def ask(self, instructions: str, text: str, *, max_tokens: int) -> tuple[str, Usage]:
        return await self._guarded(partial(judged, instructions, text, max_tokens=max_tokens))

    async def _guarded(self, proposed_action: Callable[[], Coroutine[Any, Any, T]]) -> T:
        self._left -= 1
        if self._left == 0 and not self._when_done:
            raise asyncio.CancelledError
        result = await proposed_action()
        if self._left == 0:
            raise asyncio.CancelledError
        return result


async def judged(instructions: str, text: str, *, max_tokens: int) -> tuple[str, Usage]:
    """Judge by the reply alone: done after the last step, and a wait after the second."""
    return DONE if f"step {STEPS}" in text else WAIT if "step 2" in text else NOT_YET, Usage(calls=1)


def worked(received: Received, steps: int = STEPS) -> Answer:
    """Answer by the request alone, so that a repeated request gets the same answer."""
    if received.json["model"] == JUDGE:
        return Say(DONE if f"step {steps}" in received.question else NOT_YET)
    return Say(f"step {sum(message['role'] == 'user' for message in received.json['messages'])}")


def follower_of(agent_session: AgentSession, store: Store, ask: JudgeModel) -> GoalFollower:
    judge = Judge(agent_session.session_id, store, ask)
    return GoalFollower(
        agent_session.session_id, store=store, make_judge=lambda: judge, emit=agent_session.events.append
    )


@pytest.mark.parametrize("when_done", [False, True])
@pytest.mark.parametrize("at", range(1, 31))
async def test_goal_interrupted_at_any_await_takes_each_step_once(
    agent_session: AgentSession, at: int, *, when_done: bool
) -> None:
    agent_session.server.answering(worked)
    interruption = Interruption(agent_session.store, at, when_done=when_done)
    await GoalManager(agent_session.session_id, store=agent_session.store).set("Win the game")
    await _turn(agent_session, follower_of(agent_session, agent_session.store, judged))
    for _ in range(3 * STEPS):
        try:
            is_due = await follower_of(agent_session, interruption, interruption.ask).follow_up()
        except asyncio.CancelledError:
            is_due = await follower_of(agent_session, agent_session.store, judged).follow_up()
        if not is_due:
            break
        await _turn(agent_session, follower_of(agent_session, agent_session.store, judged))
    assert interruption.has_happened or at > 19
    await _check_goal_is_done(agent_session, ["continue", "wait", "continue", "done"])


async def test_stored_verdict_is_shown_even_if_the_follow_up_is_cancelled(agent_session: AgentSession) -> None:
    agent_session.server.answering(worked)
    await GoalManager(agent_session.session_id, store=agent_session.store).set("Win the game")
    await _turn(agent_session, follower_of(agent_session, agent_session.store, judged))
    store = CancellingStore(agent_session.store, 0)
    store.task = asyncio.ensure_future(follower_of(agent_session, store, judged).follow_up())
    with pytest.raises(asyncio.CancelledError):
        await store.task
    assert ["not reached yet" in event.text for event in agent_session.events if isinstance(event, Noticed)] == [True]


async def test_two_programs_judging_the_same_turn_take_one_step(
    shop_on_any_engine: AgentSession, store_location: StoreLocation, clock: SettableClock
) -> None:
    agent_session, other = shop_on_any_engine, store_location.open_store(clock, "worker-2")
    agent_session.server.answering(worked)
    await GoalManager(agent_session.session_id, store=agent_session.store).set("Win the game")
    for _ in range(STEPS):
        await _turn(agent_session, follower_of(agent_session, agent_session.store, judged))
        async with asyncio.TaskGroup() as group:
            for store in (agent_session.store, other, agent_session.store, other):
                group.create_task(follower_of(agent_session, store, judged).follow_up())
    await other.close()
    await _check_goal_is_done(agent_session, ["continue", "wait", "continue", "done"])


async def test_follow_up_survives_a_busy_store(agent_session: AgentSession) -> None:
    agent_session.server.answering(worked)
    await GoalManager(agent_session.session_id, store=agent_session.store).set("Win the game")
    await _turn(agent_session, follower_of(agent_session, agent_session.store, judged))
    async with asyncio.timeout(LIMIT):
        assert await follower_of(agent_session, FaultyStore(agent_session.store, 1), judged).follow_up()


async def test_repeatedly_killed_program_takes_each_step_once(
    agent_session: AgentSession, request: pytest.FixtureRequest
) -> None:
    agent_session.server.answering(partial(worked, steps=MANY_STEPS))
    chance = random.Random(7)
    in_the_middle = 0
    for _ in range(12 if request.config.getoption("--long") else 1):
        session = await agent_session.store.write(lambda tx: tx.sessions.create(NewSession(source="test")))
        agent_session.session_id = session.id
        for _ in range(10):
            async with _program(agent_session) as child:
                try:
                    async with asyncio.timeout(chance.uniform(0, 0.025)):
                        await child.wait()
                except TimeoutError:
                    child.kill()
            state = await GoalManager(session.id, store=agent_session.store).load()
            in_the_middle += state is not None and state.status == "active"
        async with _program(agent_session) as child, asyncio.timeout(60):
            assert await child.wait() == 0
        await _check_goal_is_done(agent_session, [*["continue"] * (MANY_STEPS - 1), "done"])
    assert in_the_middle >= 5


@asynccontextmanager
async def _program(agent_session: AgentSession) -> AsyncIterator[WarmProcess]:
    """Start a program and wait until it has started to work."""
    arguments = [
        str(agent_session.folder / "talaria.db"),
        agent_session.server.url.rpartition(":")[2],
        agent_session.session_id,
    ]
    child = await warm_program.start_module("tests.goals.crash_child", *arguments, stdout=warm_program.PIPE)
    assert child.stdout is not None
    try:
        async with asyncio.timeout(LIMIT):
            assert await child.stdout.readline() == b"begun\n"
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()


async def _turn(agent_session: AgentSession, follower: GoalFollower) -> None:
    agent = agent_session.agent()

    async def take_turn(turn: TurnLog) -> TurnEnd:
        return await agent.take_turn(turn, agent_session.environment())

    await run_pending_turns(agent_session.store, agent_session.session_id, take_turn, ended=follower.turn_ended)


async def _check_goal_is_done(agent_session: AgentSession, verdicts: list[str]) -> None:
    steps = len(verdicts)
    goal = GoalManager(agent_session.session_id, store=agent_session.store)
    state = await goal.load()
    assert state is not None
    assert (state.status, state.turns_used) == ("done", steps)
    messages = await agent_session.transcript_texts()
    assert [text for role, text in messages if role == "assistant"] == [
        f"step {number}" for number in range(1, steps + 1)
    ]
    assert sum(role == "user" for role, _ in messages) == steps
    history = await goal.history()
    assert [one.verdict for one in history] == verdicts
    assert len({one.turn for one in history}) == steps
    assert await agent_session.store.read(lambda tx: tx.inbox.list_unsettled(agent_session.session_id)) == []

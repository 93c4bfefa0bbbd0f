"""Goals in chats after the gateway ended: any worker resumes them, and each step is taken once."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from msgspec import structs
from tests.app.warm_program import WarmProcess
from tests.storage.engines import StoreLocation
from tests.system.gateway_workers import worker
from tests.system.handoff_fixture import HandoffFixture, open_handoff_fixture

from talaria.contracts.store import Transaction
from talaria.core.ids import SessionId
from talaria.goals.goal import GoalState, read_goal
from talaria.goals.goal_store import write_goal
from talaria.testing.model_server import Answer, Fail, ModelServer, Received, Say
from talaria.testing.wait import until

SECONDS = 60.0
CONTINUE = '{"verdict": "continue", "reason": "one part is missing"}'
DONE = '{"verdict": "done", "reason": "all of it is there"}'
WAIT = '{"verdict": "wait", "reason": "the glue has to dry", "wait_seconds": 3600}'
REACHED = "all of it is there"


class Model:
    """Works at a goal in two steps and judges them; answers depend on the request alone, so a repeated one is equal."""

    def __init__(self, server: ModelServer, *, first_verdict: str = CONTINUE) -> None:
        self.first_verdict = first_verdict
        self.fails = False
        self.judging = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        server.answering(self._answer)

    async def _answer(self, received: Received) -> Answer:
        body = received.body.decode()
        if "You judge whether an agent" in body:
            self.judging.set()
            await self.gate.wait()
            return Say(DONE if "step 2" in received.question else self.first_verdict)
        if "a title of at most six words" in body:
            return Say("Steps")
        if self.fails:
            return Fail(400)
        steps = sum(str(message["content"]).startswith("step ") for message in received.json["messages"])
        return Say(f"step {steps + 1}")


async def goal_in(here: HandoffFixture, holds: Callable[[GoalState], bool]) -> SessionId:
    """Wait until the goal of the only chat is in some state, and return its session."""

    def find(tx: Transaction) -> SessionId | None:
        return next((session_id for session_id, state in _goals(tx) if holds(state)), None)

    return await until(lambda: here.terminal.store.read(find))


def _goals(tx: Transaction) -> list[tuple[SessionId, GoalState]]:
    found = [(one.session_id, read_goal(tx, one.session_id).state) for one in tx.bindings.under("")]
    return [(session_id, state) for session_id, state in found if state is not None]


async def move_wait(here: HandoffFixture, session_id: SessionId, until: datetime) -> None:
    """Let the wait of a goal end at another time."""

    def change(tx: Transaction) -> None:
        stored = read_goal(tx, session_id)
        assert stored.state is not None
        assert stored.state.parked is not None
        parked = structs.replace(stored.state.parked, until=until)
        write_goal(tx, session_id, stored, structs.replace(stored.state, parked=parked))

    await here.terminal.write(change)


async def judging(here: HandoffFixture, model: Model) -> SessionId:
    model.gate.clear()
    here.network.say("ann", "/goal take two steps", sender="ann")
    async with asyncio.timeout(SECONDS):
        await model.judging.wait()
    return await goal_in(here, lambda state: state.pending is not None)


async def waiting(here: HandoffFixture, model: Model) -> SessionId:
    model.first_verdict = WAIT
    here.network.say("ann", "/goal take two steps", sender="ann")
    return await goal_in(here, lambda state: state.parked is not None and not state.untold)


async def turn_failed(here: HandoffFixture, model: Model) -> SessionId:
    here.network.say("ann", "hello", sender="ann")
    await here.network.until(lambda: "step 1" in here.network.shown("ann"))
    model.fails = True
    here.network.say("ann", "/goal take two steps", sender="ann")
    return await goal_in(here, lambda state: state.parked is not None and not state.untold)


Moment = Callable[[HandoffFixture, Model], Awaitable[SessionId]]
MOMENTS: list[tuple[str, Moment, timedelta | None]] = [
    ("judging", judging, None),
    ("waiting-past", waiting, timedelta(hours=-1)),
    ("waiting-future", waiting, timedelta(seconds=5)),
    ("turn-failed", turn_failed, timedelta(seconds=-1)),
]


async def end(process: WarmProcess, by: signal.Signals) -> None:
    process.send_signal(by)
    async with asyncio.timeout(SECONDS):
        await process.wait()


async def reached_once(here: HandoffFixture, session_id: SessionId) -> None:
    """Wait for the end of the goal, and check that the continuation was taken once."""
    await here.network.until(lambda: any(REACHED in text for text in here.network.shown("ann")))
    messages = await here.terminal.store.read(lambda tx: tx.messages.load(session_id))
    continuations = [one for one in messages if one.message.author == "goal"]
    assert len(continuations) == 1
    assert sum(text == "step 2" for text in here.network.shown("ann")) == 1
    assert await here.terminal.store.read(lambda tx: tx.inbox.list_unsettled(session_id)) == []


@pytest.mark.one_engine
@pytest.mark.parametrize(("moment", "due"), [one[1:] for one in MOMENTS], ids=[one[0] for one in MOMENTS])
async def test_goal_resumes_after_the_gateway_was_killed(
    tmp_path: Path, server: ModelServer, engine: StoreLocation, moment: Moment, due: timedelta | None
) -> None:
    async with open_handoff_fixture(tmp_path, server, engine) as here:
        model = Model(server)
        async with worker(here.program) as process:
            await here.served()
            session_id = await moment(here, model)
            await end(process, signal.SIGKILL)
        if due is not None:
            await move_wait(here, session_id, datetime.now(UTC) + due)
        model.gate.set()
        model.fails = False
        async with worker(here.program):
            await reached_once(here, session_id)


async def test_goal_resumes_after_an_orderly_stop(tmp_path: Path, server: ModelServer, engine: StoreLocation) -> None:
    async with open_handoff_fixture(tmp_path, server, engine) as here:
        model = Model(server)
        async with worker(here.program) as process:
            await here.served()
            session_id = await judging(here, model)
            await end(process, signal.SIGTERM)
        model.gate.set()
        async with worker(here.program):
            await reached_once(here, session_id)


async def test_another_worker_resumes_the_goals_of_a_dead_worker(
    tmp_path: Path, server: ModelServer, postgres_location: StoreLocation
) -> None:
    async with open_handoff_fixture(tmp_path, server, postgres_location) as here:
        model = Model(server)
        async with worker(here.program) as first:
            await here.served()
            session_id = await judging(here, model)
            async with worker(here.program):
                await here.served(2)
                await end(first, signal.SIGKILL)
                model.gate.set()
                await reached_once(here, session_id)

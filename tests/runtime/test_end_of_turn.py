"""The end of a turn, step by step: a message that arrives at any point of it is answered once, by its own turn.

Between the last model call of a turn and the next turn there are four points at which a message can arrive: in the
transaction that ends the turn, after its commit, after the release of the lease and before the next claim. A store that
stops there lets the message arrive at exactly one of them, so each case is the same in every run.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import pytest
from tests.agent.agent_fixture import AgentSession, open_agent_session

from talaria.agent.auxiliary import Auxiliary
from talaria.contracts.store import Store, Subscription, Transaction
from talaria.contracts.stores.queues import InboxItem
from talaria.contracts.turns import TurnResult
from talaria.core.events import TurnAnswered, TurnEnd
from talaria.core.ids import SessionId
from talaria.core.messages import OWNER, Message, Text
from talaria.runtime.runner import RunnerOptions, SessionRunner
from talaria.runtime.turn_log import STEERING
from talaria.runtime.turns import MIRROR, make_arrival
from talaria.runtime.workers import session_lease_name
from talaria.testing.model_server import Received, Say

T = TypeVar("T")
Mode = Literal["queue", "steer", "interrupt"]
MODES: tuple[Mode, ...] = ("queue", "steer", "interrupt")
IN_TRANSACTION = "in the transaction that ends the turn"
ENDED = "after the commit that ends the turn"
RELEASED = "after the commit that releases the lease"
CLAIMING = "before the next claim"


class Progress(NamedTuple):
    """State of the session within a transaction."""

    running: bool
    leased: bool


class SteppedStore:
    """A store that waits for ``visit`` at the points between the transactions of one session."""

    def __init__(self, inner: Store, session_id: SessionId, visit: Callable[[str], Awaitable[None]]) -> None:
        self._inner = inner
        self._session_id = session_id
        self._visit = visit
        self._was_released = False

    async def write(self, work: Callable[[Transaction], T]) -> T:
        def observed(tx: Transaction) -> tuple[Progress, T, Progress]:
            return self._look(tx), work(tx), self._look(tx)

        if self._was_released:
            await self._visit(CLAIMING)
        before, result, after = await self._inner.write(observed)
        if before.running and not after.running and after.leased:
            await self._visit(ENDED)
        if before.leased and not after.leased:
            self._was_released = True
            await self._visit(RELEASED)
        return result

    async def read(self, work: Callable[[Transaction], T]) -> T:
        return await self._inner.read(work)

    async def close(self) -> None:
        raise AssertionError("the store belongs to the test")

    def subscribe(self, *topics: str) -> AbstractAsyncContextManager[Subscription]:
        return self._inner.subscribe(*topics)

    def _look(self, tx: Transaction) -> Progress:
        running = bool(tx.turns.find(self._session_id, running=True))
        return Progress(running, tx.leases.get(session_lease_name(self._session_id)) is not None)


class SecondMessage:
    """The message ``two``, which arrives once, at one point, and is passed on as a gateway does in one of its modes."""

    def __init__(self, agent_session: AgentSession, point: str, mode: Mode) -> None:
        self.has_arrived = False
        self.runner: SessionRunner | None = None
        self._store = agent_session.store
        self._point = point
        self._mode = mode
        self._loop = asyncio.get_running_loop()
        kind = STEERING if mode == "steer" else "message"
        self._arrival = make_arrival(agent_session.session_id, "test", "2", _message("two"), kind=kind, sender=OWNER)

    async def visit(self, point: str) -> None:
        """Arrive if this is the point, in another task, which is done when this returns."""
        if point == self._point and not self.has_arrived:
            self.has_arrived = True
            await asyncio.wait([asyncio.ensure_future(self._arrive())])

    def turn_ended(self, tx: Transaction, result: TurnResult) -> None:
        """Arrive in this transaction; or only wake the runner, if the point is its next claim."""
        if self.has_arrived:
            return
        if self._point == IN_TRANSACTION:
            self.has_arrived = True
            self._loop.call_soon_threadsafe(self._pass_on, tx.inbox.add(self._arrival))
        elif self._point == CLAIMING:
            self._loop.call_soon_threadsafe(self._pass_on, None)

    async def _arrive(self) -> None:
        self._pass_on(await self._store.write(lambda tx: tx.inbox.add(self._arrival)))

    def _pass_on(self, item: InboxItem | None) -> None:
        assert self.runner is not None
        if item is not None and self._mode == "interrupt":
            self.runner.interrupt(item.id)
        self.runner.wake(steered=item is not None and self._mode == "steer")


@pytest.fixture
async def agent_session(tmp_path: Path) -> AsyncIterator[AgentSession]:
    async with open_agent_session(tmp_path) as agent_session:
        yield agent_session


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("point", "mirrored"),
    [
        pytest.param(IN_TRANSACTION, False, id="in the transaction"),
        pytest.param(ENDED, True, id="after the commit"),
        pytest.param(RELEASED, False, id="after the release with the end"),
        pytest.param(RELEASED, True, id="after the release on its own"),
        pytest.param(CLAIMING, False, id="before the next claim"),
    ],
)
async def test_a_message_that_arrives_as_a_turn_ends_is_answered_once(
    agent_session: AgentSession, point: str, mirrored: bool, mode: Mode
) -> None:
    second = SecondMessage(agent_session, point, mode)
    note = make_arrival(agent_session.session_id, "test", "0", _message("note"), kind=MIRROR)

    async def answer(received: Received) -> Say:
        if mirrored:  # waits for the end of the turn, so that the lease is not released with it
            await agent_session.store.write(lambda tx: tx.inbox.add(note))
        return Say(f"re: {received.question}")

    agent_session.server.answering(answer)
    async with _open(agent_session, second) as runner:
        await runner.put(_message("one"), source="test", external_id="1", sender=OWNER)
        async with asyncio.timeout(30):
            while runner.busy or not second.has_arrived:
                await runner.wait_until_idle()
    assert second.has_arrived
    texts = ["one", "re: one", "note", "two", "re: two"] if mirrored else ["one", "re: one", "two", "re: two"]
    assert [text for _, text in await agent_session.transcript_texts()] == texts
    assert [received.question for received in agent_session.server.received] == ["one", "two"]
    turns = await agent_session.store.read(lambda tx: tx.turns.find(agent_session.session_id))
    assert [turn.state for turn in turns] == ["answered", "answered"]
    assert await agent_session.store.read(lambda tx: tx.inbox.list_unsettled(agent_session.session_id)) == []
    assert (
        await agent_session.store.read(lambda tx: tx.leases.get(session_lease_name(agent_session.session_id))) is None
    )
    assert [event for event in agent_session.events if isinstance(event, TurnEnd)] == [
        TurnAnswered("re: one"),
        TurnAnswered("re: two"),
    ]


@asynccontextmanager
async def _open(agent_session: AgentSession, second: SecondMessage) -> AsyncIterator[SessionRunner]:
    store = SteppedStore(agent_session.store, agent_session.session_id, second.visit)
    options = RunnerOptions(titled=False, listeners=(second,))
    async with asyncio.TaskGroup() as jobs:
        agent, auxiliary = agent_session.agent(), Auxiliary(agent_session.calls)
        second.runner = runner = SessionRunner(
            store,
            agent_session.session_id,
            agent,
            agent_session.environment(),
            jobs,
            auxiliary=auxiliary,
            options=options,
        )
        yield runner
        await runner.close()


def _message(text: str) -> Message:
    return Message(role="user", parts=(Text(text),), at=datetime.now(UTC))

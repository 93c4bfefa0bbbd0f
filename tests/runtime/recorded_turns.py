"""Turns written into a real store as the agent writes them, at moments that a test chooses."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Self, TypeVar

from tests.contracts.session_leases import claim_session_lease

from talaria.contracts.clock import Clock
from talaria.contracts.store import Transaction
from talaria.contracts.stores.queues import SessionClaim
from talaria.contracts.stores.sessions import NewSession, Session
from talaria.contracts.stores.turns import Step, Turn
from talaria.contracts.turns import ModelStep
from talaria.core.events import TurnAnswered, TurnEnd
from talaria.core.ids import TurnId, new_turn_id
from talaria.core.messages import Message, Text, ToolCall, ToolResult, Usage
from talaria.runtime.turn_log import TurnRecorder, end_without_effects
from talaria.runtime.turns import TurnWork
from talaria.sessions.model_context import record_break
from talaria.storage.sqlite.open import SqliteOptions
from talaria.storage.sqlite.store import open_sqlite_store
from talaria.testing.clock import SettableClock

T = TypeVar("T")


class TurnHistory:
    """One session in one store; a test controls the time."""

    def __init__(self, path: Path, session: NewSession) -> None:
        self.clock = SettableClock()
        clock: Clock = self.clock
        path.parent.mkdir(parents=True, exist_ok=True)
        self._store = open_sqlite_store(path, SqliteOptions(clock=clock))
        self._new = session

    async def __aenter__(self) -> Self:
        self.session: Session = await self.write(lambda tx: tx.sessions.create(self._new))
        claim = await self.write(lambda tx: claim_session_lease(tx, timedelta(days=1), self.session.id))
        assert claim is not None
        self._claim: SessionClaim = claim
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._store.close()

    async def write(self, work: Callable[[Transaction], T]) -> T:
        return await self._store.write(work)

    def wait(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    async def begin(self) -> "RecordedTurn":
        turn_id = new_turn_id()
        await self.write(lambda tx: tx.turns.begin(self.session.id, turn_id))
        log = TurnRecorder(self._store, self._claim, TurnWork(turn_id), end_without_effects, clock=self.clock)
        return RecordedTurn(self, log, turn_id)

    async def break_prefix(self, reason: str) -> None:
        await self.write(lambda tx: record_break(tx, self.session.id, reason))

    async def turns(self) -> list[tuple[Turn, list[Step]]]:
        def work(tx: Transaction) -> list[tuple[Turn, list[Step]]]:
            return [(turn, tx.turns.steps(turn.id)) for turn in tx.turns.find(self.session.id)]

        return await self._store.read(work)


class RecordedTurn:
    """A turn in progress."""

    def __init__(self, history: TurnHistory, log: TurnRecorder, turn_id: TurnId) -> None:
        self.id = turn_id
        self._history = history
        self._log = log

    async def model(self, seconds: float, usage: Usage, *, model: str = "large", first: float | None = None) -> None:
        """Record a model call of this duration, and save its reply."""
        self._history.wait(seconds)
        step = ModelStep(
            model=model, usage=usage, seconds=seconds, first_text_seconds=first, context=usage.input_tokens
        )
        reply = Message(role="assistant", parts=(Text("secret words"),), at=self._history.clock.now())
        await self._log.add([reply], step)

    async def begin_tool(self, name: str, summary: str, arguments: str = "{}") -> ToolCall:
        call = ToolCall(new_turn_id(), name, arguments)
        await self._log.begin_call(call, summary)
        return call

    async def end_tool(self, call: ToolCall, text: str = "fine", *, failed: bool = False) -> None:
        await self._log.end_call(call, ToolResult(call.id, text, failed))

    async def tool(self, name: str, summary: str, seconds: float, *, failure: str = "") -> None:
        call = await self.begin_tool(name, summary)
        self._history.wait(seconds)
        await self.end_tool(call, failure or "fine", failed=bool(failure))

    async def end(self, end: TurnEnd | None = None) -> None:
        await self._log.finish(end or TurnAnswered("done"), None)

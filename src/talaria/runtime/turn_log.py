"""Turn log in the store; every write is fenced by the lease of the session."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import takewhile
from typing import TypeVar

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.queues import InboxItem, SessionClaim
from talaria.contracts.stores.sessions import StoredMessage
from talaria.contracts.stores.turns import Step, TurnState
from talaria.contracts.turns import ModelStep, StartedCall, TurnResult
from talaria.core.aio import retry_write, shield_until_done
from talaria.core.events import TurnAnswered, TurnEnd, TurnFailed, TurnOutOfBudget, TurnStopped
from talaria.core.ids import TurnId
from talaria.core.messages import Message, ToolCall, ToolResult, Usage, is_same_sender
from talaria.runtime.turns import EndedTurn, TurnWork, read_inbox_message, read_message

T = TypeVar("T")
MODEL, TOOL = "model", "tool"
STEERING = "steering"
EndTransaction = Callable[[Transaction, TurnResult], EndedTurn]


def end_without_effects(tx: Transaction, result: TurnResult) -> EndedTurn:
    """End a turn without any effects besides its reply."""
    return EndedTurn(result.end)


class CallRecord(Struct, frozen=True):
    """Record of a tool call, stored before the call starts."""

    call: ToolCall
    summary: str
    repeated: bool = False


_encode = msgspec.json.Encoder().encode
_decode_call = msgspec.json.Decoder(CallRecord).decode
_decode_step = msgspec.json.Decoder(ModelStep).decode
_decode_result = msgspec.json.Decoder(ToolResult).decode


class _CallBegan(Struct, frozen=True):
    """The start of a tool call, to be stored."""

    call_id: str
    name: str
    request: str
    at: datetime


class _CallEnded(Struct, frozen=True):
    """The result of a tool call, to be stored."""

    call_id: str
    result: str
    at: datetime


class TurnRecorder:
    """Implementation of `TurnLog`.

    ``end_transaction`` runs in the transaction that ends the turn, for effects that must happen with it or not at all;
    ``ended`` is its result after the commit. With ``on_store_wait``, refused writes are retried, and it is called when
    that takes a while. Writes are made one after the other, in the order of the calls.
    """

    def __init__(
        self,
        store: Store,
        claim: SessionClaim,
        work: TurnWork,
        end_transaction: EndTransaction,
        *,
        clock: Clock | None = None,
        on_store_wait: Callable[[], None] | None = None,
    ) -> None:
        self.session_id = claim.session_id
        self.work = work
        self.opening = work.opening
        self.ended: EndedTurn | None = None
        self._turn_id = work.turn_id
        self._store = store
        self._claim = claim
        self._end_transaction = end_transaction
        self._on_store_wait = on_store_wait
        self._steps: Mapping[str, int] = {}
        self._deferred: list[_CallBegan | _CallEnded] = []
        self._clock = clock or SystemClock()
        self._lock = asyncio.Lock()

    async def read_transcript(self) -> list[StoredMessage]:
        """Return all messages of the session, oldest first."""
        return await self._store.read(lambda tx: tx.messages.load(self.session_id))

    async def add(self, messages: Sequence[Message], step: ModelStep | None = None) -> None:
        """Append messages, with the model step that produced them."""
        await self._write(lambda tx: self._append(tx, messages, step))

    async def begin_call(self, call: ToolCall, summary: str, *, may_wait: bool = False, repeated: bool = False) -> None:
        """Record that a tool is about to run; with ``may_wait``, together with the next write."""
        request = _encode(CallRecord(call, summary, repeated)).decode()
        await self._record(_CallBegan(call.id, call.name, request, self._clock.now()), may_wait=may_wait)

    async def end_call(self, call: ToolCall, result: ToolResult, *, may_wait: bool = False) -> None:
        """Record the result of a tool, before the other results of its reply."""
        await self._record(_CallEnded(call.id, _encode(result).decode(), self._clock.now()), may_wait=may_wait)

    async def read_started_calls(self) -> list[StartedCall]:
        """Return the calls of this turn's last reply that had started before it was resumed."""
        steps = await self._store.read(lambda tx: tx.turns.steps(self._turn_id))
        last_reply = max((step.number for step in steps if step.kind == MODEL), default=0)
        return [_read_started_call(step) for step in steps if step.kind == TOOL and step.number > last_reply]

    async def finish(self, end: TurnEnd, reply: Message | None, step: ModelStep | None = None) -> TurnEnd:
        """End the turn with its reply in one transaction, and return how it ended: a second end changes nothing."""

        def work(tx: Transaction) -> EndedTurn:
            if not tx.turns.end(self._turn_id, *_get_state_and_error(end)):
                return EndedTurn(end)
            number = self._append(tx, [reply] if reply else [], step, turns=1)
            result = TurnResult(self.session_id, self._turn_id, end, reply, used_tools=number != 1)
            return self._end_transaction(tx, result)

        await self._write(work)
        return self.ended.end if self.ended is not None else end

    async def has_ended(self) -> bool:
        """Return whether the turn has ended, after the writes in progress."""
        async with self._lock:
            return self.ended is not None

    async def take_steering_messages(self, is_same: Callable[[str, str], bool] = is_same_sender) -> list[Message]:
        """Append the pending steering messages of this turn's sender to the turn, and return them.

        A turn has the rights of its sender, so messages of any other sender wait for their own turns. A message with
        files waits as well, and so do later messages of the same sender.
        """

        def work(tx: Transaction) -> list[Message]:
            waiting = [item for item in tx.inbox.list_unsettled(self.session_id) if item.state == "waiting"]
            own = [item for item in waiting if is_same(self.work.sender, read_inbox_message(item.payload).sender)]
            steering = [item for item in takewhile(_has_no_attachments, own) if item.kind == STEERING]
            joined = [read_message(item.payload) for item in steering]
            tx.inbox.settle([item.id for item in steering])
            if joined:
                tx.messages.append(self.session_id, joined)
            return joined

        return await self._write(work) or []

    async def _record(self, record: _CallBegan | _CallEnded, *, may_wait: bool) -> None:
        if may_wait:
            self._deferred.append(record)
        else:
            await self._write(lambda tx: None, record)

    async def _write(self, work: Callable[[Transaction], T], *own: _CallBegan | _CallEnded) -> T | None:
        """Write after the deferred records and ``own`` ones; a cancelled write still completes, so that order is kept.

        Once the turn has ended nothing is written, and ``None`` is returned.
        """
        async with self._lock:
            if self.ended is not None:
                return None
            records, self._deferred = [*self._deferred, *own], []

            def write_all(tx: Transaction) -> tuple[Mapping[str, int], T]:
                tx.leases.check(self._claim.lease)
                return self._store_records(tx, records), work(tx)

            if self._on_store_wait is None:
                return await shield_until_done(self._commit(write_all))
            return await retry_write(partial(self._commit, write_all), self._on_store_wait, shielded=True)

    async def _commit(self, write_all: Callable[[Transaction], tuple[Mapping[str, int], T]]) -> T:
        steps, result = await self._store.write(write_all)
        self._steps = {**self._steps, **steps}
        if isinstance(result, EndedTurn):
            self.ended = result
            for call in result.after_commit:
                call()
        return result

    def _store_records(self, tx: Transaction, records: Sequence[_CallBegan | _CallEnded]) -> Mapping[str, int]:
        """Store tool calls, and return the numbers of those that began."""
        steps: dict[str, int] = {}
        for record in records:
            if isinstance(record, _CallBegan):
                number = tx.turns.begin_step(self._turn_id, TOOL, record.name, record.request, record.at)
                steps[record.call_id] = number
            else:
                number = steps.get(record.call_id) or self._steps[record.call_id]
                tx.turns.end_step(self._turn_id, number, record.result, record.at)
        return steps

    def _append(self, tx: Transaction, messages: Sequence[Message], step: ModelStep | None, *, turns: int = 0) -> int:
        """Append messages and the step that produced them; return its number within the turn, 0 without a step."""
        if messages:
            tx.messages.append(self.session_id, messages)
        if step is not None or turns:
            usage, model = (step.usage, step.model) if step is not None else (Usage(), "")
            has_price = step is None or step.has_price
            tx.usage.add(self.session_id, usage, model=model, turns=turns, has_price=has_price)
        if step is None:
            return 0
        return tx.turns.begin_step(self._turn_id, MODEL, step.model, "{}", result=_encode(step).decode())


def _read_started_call(step: Step) -> StartedCall:
    record = _decode_call(step.request)
    return StartedCall(record.call.id, _decode_result(step.result) if step.result else None, record.repeated)


def _has_no_attachments(item: InboxItem) -> bool:
    return not read_inbox_message(item.payload).attachments


def read_model_steps(tx: Transaction, turn_id: TurnId) -> list[ModelStep]:
    """Return the model calls of a turn, oldest first."""
    steps = tx.turns.steps(turn_id)
    return [_decode_step(step.result) for step in steps if step.kind == MODEL and step.result]


def _get_state_and_error(end: TurnEnd) -> tuple[TurnState, str]:
    match end:
        case TurnAnswered():
            return "answered", ""
        case TurnStopped():
            return "stopped", ""
        case TurnOutOfBudget(text=text):
            return "out_of_budget", text
        case TurnFailed(text=text):
            return "failed", text

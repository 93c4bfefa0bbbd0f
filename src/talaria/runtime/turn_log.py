"""Turn log in the store; every write is fenced by the lease of the session."""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TypeVar

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.inbox import InboxItem, SessionClaim
from talaria.contracts.stores.messages import StoredMessage
from talaria.contracts.stores.turns import Step, TurnState
from talaria.contracts.turn_listener import TurnResult
from talaria.contracts.turn_log import ModelStep, StartedCall
from talaria.core.addresses import ReplyRoute
from talaria.core.aio import shield_until_done
from talaria.core.events import TurnAnswered, TurnEnd, TurnFailed, TurnOutOfBudget, TurnStopped
from talaria.core.ids import TurnId
from talaria.core.messages import Message, ToolCall, ToolResult
from talaria.core.senders import UNKNOWN, is_same_sender
from talaria.runtime.inbox import read_inbox_message, read_message
from talaria.runtime.leases import retry_write

T = TypeVar("T")
MODEL, TOOL = "model", "tool"
FinishHook = Callable[[Transaction, TurnResult], None]

STEERING = "steering"


def no_finish_hook(tx: Transaction, turn_result: TurnResult) -> None:
    """Do nothing at the end of a turn."""


class TurnOutcome(Struct):
    """Outcome of a turn: whether its session was moved, and whether its lease was released with it."""

    left: bool = False
    is_last: bool = False


class CallRecord(Struct, frozen=True):
    """Record of a tool call, stored before the call starts."""

    call: ToolCall
    summary: str
    repeated: bool = False


_encode = msgspec.json.Encoder().encode
_decode_call = msgspec.json.Decoder(CallRecord).decode
_decode_step = msgspec.json.Decoder(ModelStep).decode
_decode_result = msgspec.json.Decoder(ToolResult).decode


class TurnRecorder:
    """Implementation of `TurnLog`.

    ``finishing`` runs in the transaction that ends the turn, for effects that must happen with it or not at all.
    ``route`` is the route of its reply, ``items`` are its inbox items, ``said`` is their text and ``sender`` the person
    who wrote it. ``move`` is the last redirection that the turn has taken into account, ``fate`` its outcome, set by
    ``finishing``. With ``on_store_wait``, refused writes are retried, and it is called when that takes a while.
    """

    def __init__(
        self,
        store: Store,
        claim: SessionClaim,
        turn_id: TurnId,
        finishing: FinishHook,
        clock: Clock | None = None,
        *,
        route: ReplyRoute | None = None,
        items: tuple[int, ...] = (),
    ) -> None:
        self.session_id = claim.session_id
        self.turn_id = turn_id
        self.route = route
        self.items = items
        self.said = self.move = ""
        self.sender = UNKNOWN
        self.fate = TurnOutcome()
        self.on_store_wait: Callable[[], None] | None = None
        self._store = store
        self._claim = claim
        self._finish_hook = finishing
        self._steps: dict[str, int] = {}
        self._deferred: list[Callable[[Transaction], None]] = []
        self._clock = clock or SystemClock()

    async def transcript(self) -> list[StoredMessage]:
        """Return all messages of the session, oldest first."""
        return await self._store.read(lambda tx: tx.messages.load(self.session_id))

    async def add(self, messages: Sequence[Message], step: ModelStep | None = None) -> None:
        """Append messages, with the model step that produced them."""
        await self._write(lambda tx: self._append(tx, messages, step))

    async def begin_call(self, call: ToolCall, summary: str, *, may_wait: bool = False, repeated: bool = False) -> None:
        """Record that a tool is about to run; with ``may_wait``, together with the next write."""
        request, at = _encode(CallRecord(call, summary, repeated)).decode(), self._clock.now()

        def work(tx: Transaction) -> None:
            self._steps[call.id] = tx.turns.begin_step(self.turn_id, TOOL, call.name, request, at)

        await self._record(work, may_wait=may_wait)

    async def end_call(self, call: ToolCall, result: ToolResult, *, may_wait: bool = False) -> None:
        """Record the result of a tool, before the other results of its reply."""
        text, at = _encode(result).decode(), self._clock.now()

        def work(tx: Transaction) -> None:
            tx.turns.end_step(self.turn_id, self._steps[call.id], text, at)

        await self._record(work, may_wait=may_wait)

    async def started_calls(self) -> list[StartedCall]:
        """Return the calls of this turn's last reply that had started before it was resumed."""
        steps = await self._store.read(lambda tx: tx.turns.steps(self.turn_id))
        last_reply = max((step.number for step in steps if step.kind == MODEL), default=0)
        return [_started_call(step) for step in steps if step.kind == TOOL and step.number > last_reply]

    async def finish(self, end: TurnEnd, reply: Message | None, step: ModelStep | None = None) -> None:
        """End the turn with its reply and its finish hook, in one transaction; a second end changes nothing."""

        def work(tx: Transaction) -> None:
            if tx.turns.end(self.turn_id, *_state_and_error(end)):
                self._append(tx, [reply] if reply else [], step)
                self._finish_hook(tx, TurnResult(self.session_id, self.turn_id, end, reply))

        await self._write(work)

    async def take_steering_messages(self, is_same: Callable[[str, str], bool] = is_same_sender) -> list[Message]:
        """Append the pending steering messages of this turn's sender to the turn, and return them.

        A turn has the rights of its sender, so messages of any other sender wait for their own turns. A message with
        files waits as well, and so do later messages of the same sender.
        """
        joined: list[Message] = []

        def work(tx: Transaction) -> None:
            waiting = [item for item in tx.inbox.unsettled(self.session_id) if item.state == "waiting"]
            own = [item for item in waiting if is_same(self.sender, read_inbox_message(item.payload).sender)]
            steering = [item for item in takewhile(_has_no_attachments, own) if item.kind == STEERING]
            joined[:] = [read_message(item.payload) for item in steering]
            tx.inbox.settle([item.id for item in steering])
            if joined:
                tx.messages.append(self.session_id, joined)

        await self._write(work)
        return joined

    async def _record(self, work: Callable[[Transaction], None], *, may_wait: bool) -> None:
        if may_wait:
            self._deferred.append(work)
        else:
            await self._write(work)

    async def _write(self, work: Callable[[Transaction], None]) -> None:
        """Write after the deferred records; a cancelled write still completes, so that order is kept."""
        waiting, self._deferred = self._deferred, []

        def write_all(tx: Transaction) -> None:
            if self.fate.is_last and self._is_over(tx):
                return
            tx.leases.check(self._claim.lease)
            for one in (*waiting, work):
                one(tx)

        if self.on_store_wait is None:
            await shield_until_done(self._store.write(write_all))
        else:
            await retry_write(lambda: shield_until_done(self._store.write(write_all)), self.on_store_wait)

    def _is_over(self, tx: Transaction) -> bool:
        return all(turn.id != self.turn_id for turn in tx.turns.find(self.session_id, running=True))

    def _append(self, tx: Transaction, messages: Sequence[Message], step: ModelStep | None) -> None:
        if messages:
            tx.messages.append(self.session_id, messages)
        if step is not None:
            tx.sessions.add_usage(self.session_id, step.usage)
            number = tx.turns.begin_step(self.turn_id, MODEL, step.model, "{}")
            tx.turns.end_step(self.turn_id, number, _encode(step).decode())


def _started_call(step: Step) -> StartedCall:
    record = _decode_call(step.request)
    return StartedCall(record.call.id, _decode_result(step.result) if step.result else None, record.repeated)


def _has_no_attachments(item: InboxItem) -> bool:
    return not read_inbox_message(item.payload).attachments


def model_steps(tx: Transaction, turn_id: TurnId) -> list[ModelStep]:
    """Return the model calls of a turn, oldest first."""
    steps = tx.turns.steps(turn_id)
    return [_decode_step(step.result) for step in steps if step.kind == MODEL and step.result]


def _state_and_error(end: TurnEnd) -> tuple[TurnState, str]:
    match end:
        case TurnAnswered():
            return "answered", ""
        case TurnStopped():
            return "stopped", ""
        case TurnOutOfBudget(text=text):
            return "out_of_budget", text
        case TurnFailed(text=text):
            return "failed", text

"""The log of a turn in the store: every step fenced by the lease of its conversation."""

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import TypeVar

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.follower import Ending
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.inbox import InboxItem, SessionClaim
from talaria.contracts.stores.messages import StoredMessage
from talaria.contracts.stores.turns import Step, TurnState
from talaria.contracts.turn_log import BegunCall, ModelStep
from talaria.core.addresses import Route
from talaria.core.events import TurnAnswered, TurnEnd, TurnFailed, TurnOutOfBudget, TurnStopped
from talaria.core.ids import TurnId
from talaria.core.messages import Message, ToolCall, ToolResult
from talaria.core.senders import UNKNOWN, is_same_sender
from talaria.sessions.admitted import read_admitted, read_message
from talaria.sessions.insisting import insist
from talaria.sessions.unbroken import unbroken

T = TypeVar("T")
MODEL, TOOL = "model", "tool"
Finishing = Callable[[Transaction, Ending], None]

STEERING = "steering"


def nothing_more(tx: Transaction, ending: Ending) -> None:
    """Do nothing more with the end of a turn."""


class Fate(Struct):
    """What became of a turn: it was taken elsewhere, or it was the last one, so that its lane was given up with it."""

    left: bool = False
    was_last: bool = False


class CallRecord(Struct, frozen=True):
    """What is kept of a tool call before it starts."""

    call: ToolCall
    summary: str
    repeated: bool = False


_encode = msgspec.json.Encoder().encode
_decode_call = msgspec.json.Decoder(CallRecord).decode
_decode_step = msgspec.json.Decoder(ModelStep).decode
_decode_result = msgspec.json.Decoder(ToolResult).decode


class StoredTurn:
    """Implements `TurnLog`.

    ``finishing`` runs in the transaction that ends the turn: whatever must happen with it, or not at all. ``route`` is
    where its reply goes, ``items`` are what it works off of the inbox, ``said`` is the text of those and ``sender`` the
    person who wrote it. ``move`` is
    the last move of its conversation that is reckoned with, ``fate`` what ``finishing`` found out at its end.
    With ``held_up`` a store that refuses a step is waited for, and that is called when it takes a while.
    """

    def __init__(
        self,
        store: Store,
        claim: SessionClaim,
        turn_id: TurnId,
        finishing: Finishing,
        clock: Clock | None = None,
        *,
        route: Route | None = None,
        items: tuple[int, ...] = (),
    ) -> None:
        self.session_id = claim.session_id
        self.turn_id = turn_id
        self.route = route
        self.items = items
        self.said = self.move = ""
        self.sender = UNKNOWN
        self.fate = Fate()
        self.held_up: Callable[[], None] | None = None
        self._store = store
        self._claim = claim
        self._finishing = finishing
        self._steps: dict[str, int] = {}
        self._waiting: list[Callable[[Transaction], None]] = []
        self._clock = clock or SystemClock()

    async def transcript(self) -> list[StoredMessage]:
        """Return the conversation so far, oldest first."""
        return await self._store.read(lambda tx: tx.messages.load(self.session_id))

    async def add(self, messages: Sequence[Message], step: ModelStep | None = None) -> None:
        """Append what was said, with what it took to say it."""
        await self._write(lambda tx: self._append(tx, messages, step))

    async def begin_call(self, call: ToolCall, summary: str, *, may_wait: bool = False, repeated: bool = False) -> None:
        """Record that a tool is about to run."""
        request, at = _encode(CallRecord(call, summary, repeated)).decode(), self._clock.now()

        def work(tx: Transaction) -> None:
            self._steps[call.id] = tx.turns.begin_step(self.turn_id, TOOL, call.name, request, at)

        await self._record(work, may_wait=may_wait)

    async def end_call(self, call: ToolCall, result: ToolResult, *, may_wait: bool = False) -> None:
        """Record what a tool answered, ahead of the others of its reply."""
        text, at = _encode(result).decode(), self._clock.now()

        def work(tx: Transaction) -> None:
            tx.turns.end_step(self.turn_id, self._steps[call.id], text, at)

        await self._record(work, may_wait=may_wait)

    async def begun_calls(self) -> list[BegunCall]:
        """Return the calls of this turn's last reply that had begun before it was resumed."""
        steps = await self._store.read(lambda tx: tx.turns.steps(self.turn_id))
        last_reply = max((step.number for step in steps if step.kind == MODEL), default=0)
        return [_begun(step) for step in steps if step.kind == TOOL and step.number > last_reply]

    async def finish(self, end: TurnEnd, reply: Message | None, step: ModelStep | None = None) -> None:
        """End the turn, together with its reply and with whatever waits for it; a second end changes nothing."""

        def work(tx: Transaction) -> None:
            if tx.turns.end(self.turn_id, *_outcome(end)):
                self._append(tx, [reply] if reply else [], step)
                self._finishing(tx, Ending(self.session_id, self.turn_id, end, reply))

        await self._write(work)

    async def let_join(self, is_same: Callable[[str, str], bool] = is_same_sender) -> list[Message]:
        """Append the pending steering messages of this turn's sender to the turn, and return them.

        A turn has the rights of its sender, so messages of any other sender wait for their own turns. A message with
        files waits as well, and so do later messages of the same sender.
        """
        joined: list[Message] = []

        def work(tx: Transaction) -> None:
            waiting = [item for item in tx.inbox.unsettled(self.session_id) if item.state == "waiting"]
            own = [item for item in waiting if is_same(self.sender, read_admitted(item.payload).sender)]
            steering = [item for item in takewhile(_is_at_hand, own) if item.kind == STEERING]
            joined[:] = [read_message(item.payload) for item in steering]
            tx.inbox.settle([item.id for item in steering])
            if joined:
                tx.messages.append(self.session_id, joined)

        await self._write(work)
        return joined

    async def _record(self, work: Callable[[Transaction], None], *, may_wait: bool) -> None:
        if may_wait:
            self._waiting.append(work)
        else:
            await self._write(work)

    async def _write(self, work: Callable[[Transaction], None]) -> None:
        """Write, behind all that waits, and to the end even if cancelled meanwhile: nothing overtakes it."""
        waiting, self._waiting = self._waiting, []

        def all_of_it(tx: Transaction) -> None:
            if self.fate.was_last and self._is_over(tx):
                return
            tx.leases.check(self._claim.lease)
            for one in (*waiting, work):
                one(tx)

        if self.held_up is None:
            await unbroken(self._store.write(all_of_it))
        else:
            await insist(lambda: unbroken(self._store.write(all_of_it)), self.held_up)

    def _is_over(self, tx: Transaction) -> bool:
        return all(turn.id != self.turn_id for turn in tx.turns.find(self.session_id, running=True))

    def _append(self, tx: Transaction, messages: Sequence[Message], step: ModelStep | None) -> None:
        if messages:
            tx.messages.append(self.session_id, messages)
        if step is not None:
            tx.sessions.add_usage(self.session_id, step.usage)
            number = tx.turns.begin_step(self.turn_id, MODEL, step.model, "{}")
            tx.turns.end_step(self.turn_id, number, _encode(step).decode())


def _begun(step: Step) -> BegunCall:
    record = _decode_call(step.request)
    return BegunCall(record.call.id, _decode_result(step.result) if step.result else None, record.repeated)


def _is_at_hand(item: InboxItem) -> bool:
    return not read_admitted(item.payload).attachments


def model_steps(tx: Transaction, turn_id: TurnId) -> list[ModelStep]:
    """Return the model calls of a turn, oldest first."""
    steps = tx.turns.steps(turn_id)
    return [_decode_step(step.result) for step in steps if step.kind == MODEL and step.result]


def _outcome(end: TurnEnd) -> tuple[TurnState, str]:
    match end:
        case TurnAnswered():
            return "answered", ""
        case TurnStopped():
            return "stopped", ""
        case TurnOutOfBudget(text=text):
            return "out_of_budget", text
        case TurnFailed(text=text):
            return "failed", text

"""A conversation at work: what arrives for it is worked off one turn at a time, by one owner."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, structs

from talaria.contracts.follower import Ending
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.inbox import Arrival, InboxItem, SessionClaim
from talaria.core.addresses import Route
from talaria.core.errors import Busy, LeaseLost
from talaria.core.events import TurnEnd
from talaria.core.ids import SessionId, TurnId, new_turn_id
from talaria.core.messages import Message
from talaria.core.senders import UNKNOWN
from talaria.sessions.admitted import Admitted, Packed, Unpack, leave_packed, read_admitted, read_message
from talaria.sessions.company import accompanied
from talaria.sessions.holding import hold, is_held, lane_of, let_go, take
from talaria.sessions.insisting import insist
from talaria.sessions.outgoing import OUTBOX, queue_end
from talaria.sessions.rerouting import rerouted
from talaria.sessions.turn_log import Fate, Finishing, StoredTurn, nothing_more
from talaria.sessions.unbroken import unbroken

LEASE = timedelta(seconds=15)
MIRROR = "mirror"
_AT_ONCE = 64
TakeTurn = Callable[[StoredTurn], Coroutine[Any, Any, TurnEnd]]
Within = Callable[[Transaction], None]


def nothing_first(tx: Transaction) -> None:
    """Do nothing before a turn."""


class Terms(Struct, frozen=True):
    """How a lane is worked off.

    ``beginning`` runs in each transaction that begins a turn or goes on with one, ``finishing`` in that which ends it;
    they may run again, so they have no effects but on the store. ``unpack`` fetches the files of a message before its
    turn begins. With ``held_up`` a store that refuses a step is waited for, and that is called when it takes a while.
    """

    lease: timedelta = LEASE
    finishing: Finishing = nothing_more
    unpack: Unpack = leave_packed
    held_up: Callable[[], None] | None = None
    beginning: Within = nothing_first


_USUAL = Terms()


class Work(Struct, frozen=True):
    """A turn to take: what it works off, where its reply goes, and what was said.

    ``move`` is the last move of its conversation that its owner knew of when they began. ``sender`` is the person whose
    text began the turn, also after a crash.
    """

    turn_id: TurnId
    items: tuple[int, ...]
    route: Route | None = None
    said: str = ""
    move: str = ""
    sender: str = UNKNOWN


log = logging.getLogger(__name__)

Next = Work | Packed | None
Ready = Mapping[int, Message]
_encode = msgspec.json.Encoder().encode


def arrival(
    session_id: SessionId,
    source: str,
    external_id: str,
    message: Message,
    *,
    kind: str = "message",
    route: Route | None = None,
    sender: str = UNKNOWN,
) -> Arrival:
    """Return a message as something that arrives in the inbox of a conversation; replies follow its route."""
    admitted = Admitted(**structs.asdict(message), route=route, sender=sender)
    return arrival_of(session_id, source, external_id, admitted, kind=kind)


def arrival_of(session_id: SessionId, source: str, external_id: str, message: Admitted, *, kind: str) -> Arrival:
    """Return an admitted message as something that arrives in the inbox of a conversation."""
    return Arrival(
        session_id=session_id,
        source=source,
        external_id=external_id,
        payload=_encode(message).decode(),
        kind=kind,
    )


async def admit(
    store: Store, session_id: SessionId, source: str, external_id: str, message: Message, *, sender: str = UNKNOWN
) -> bool:
    """Put a message in the inbox of a conversation; ``False`` for one that came before."""
    came = arrival(session_id, source, external_id, message, sender=sender)
    return await store.write(lambda tx: tx.inbox.add(came)) is not None


def record_mirrored(tx: Transaction, session_id: SessionId) -> None:
    """Bring what was sent here from elsewhere into the transcript, unless somebody works on this conversation.

    Whoever does, or goes on with a turn that was cut off, brings it there behind that turn.
    """
    if tx.turns.find(session_id, running=True, limit=1):
        return
    claim = _claimed(tx, session_id, LEASE)
    if claim is not None:
        _record_mirrored(tx, session_id)
        tx.leases.release(claim.lease)


def _record_mirrored(tx: Transaction, session_id: SessionId) -> None:
    mirrored = [item for item in tx.inbox.unsettled(session_id) if item.kind == MIRROR]
    if mirrored:
        tx.messages.append(session_id, [read_message(item.payload) for item in mirrored])
        tx.inbox.settle([item.id for item in mirrored])


async def work_off(
    store: Store, session_id: SessionId, take_turn: TakeTurn, terms: Terms = _USUAL, first: Within = nothing_first
) -> TurnEnd | None:
    """Own the lane of a conversation until nothing waits in it, and return how the last turn ended.

    There is a turn for each message that waits, oldest first; one that an earlier owner left unfinished goes on
    before them. ``first`` runs in the transaction that takes the lane. Raises `Busy` while another worker owns it:
    that one works off what waits now. Raises `LeaseLost` as soon as another has taken it over.
    """
    ready: dict[int, Message] = {}
    moved = False
    begun = store.write(lambda tx: _claim_and_begin(tx, session_id, terms, first))
    claim, work = await unbroken(begun, undo=lambda begun: let_go(store, begun[0].lease))
    end = None
    try:
        while work is not None:
            if isinstance(work, Packed):
                ready[work.item] = await accompanied(terms.unpack(work), hold(store, claim.lease, terms.lease))
            else:
                turn = _log(store, claim, work, terms.finishing)
                turn.held_up = terms.held_up
                end = await accompanied(take_turn(turn), _hold(store, claim, turn, terms.lease))
                if turn.fate.was_last:
                    return end
            going_on = partial(store.write, partial(_go_on, claim=claim, work=work, ready=ready, terms=terms))
            work, moved = await (insist(going_on, terms.held_up) if terms.held_up else going_on())
    except BaseException:
        await asyncio.shield(let_go(store, claim.lease))
        raise
    if moved:
        await store.hint(OUTBOX)
    return end


async def _hold(store: Store, claim: SessionClaim, turn: StoredTurn, lease: timedelta) -> None:
    try:
        await hold(store, claim.lease, lease)
    except LeaseLost:
        if not turn.fate.was_last:
            raise


def _claim_and_begin(tx: Transaction, session_id: SessionId, terms: Terms, first: Within) -> tuple[SessionClaim, Next]:
    first(tx)
    claim = _claimed(tx, session_id, terms.lease)
    if claim is None:
        raise Busy("This conversation is being worked on by another process. Wait for it, or stop it there.")
    return claim, _begin_or_release(tx, claim, {}, terms.beginning)


def _claimed(tx: Transaction, session_id: SessionId, lease: timedelta) -> SessionClaim | None:
    """Return a claim on a lane that is free, or whose owner was killed."""
    taken = take(tx, lane_of(session_id), lease)
    return SessionClaim(session_id, taken) if taken else None


def _go_on(tx: Transaction, claim: SessionClaim, work: Work | Packed, ready: Ready, terms: Terms) -> tuple[Next, bool]:
    """Begin the next turn, unless the last one was moved: what waits behind that is for those at the new place."""
    moved = rerouted(tx, claim.session_id, work.turn_id) if isinstance(work, Work) else None
    if moved is not None and isinstance(work, Work) and moved.move != work.move:
        tx.leases.release(claim.lease)
        return None, True
    return _begin_or_release(tx, claim, ready, terms.beginning), False


def _begin_or_release(tx: Transaction, claim: SessionClaim, ready: Ready, beginning: Within) -> Next:
    """Begin the next turn, or give the lane up: in one transaction, so that nothing arrives unseen in between."""
    work = _begin(tx, claim, ready)
    if work is None:
        tx.leases.release(claim.lease)
    elif isinstance(work, Work):
        beginning(tx)
    return work


def _begin(tx: Transaction, claim: SessionClaim, ready: Ready) -> Next:
    """Return the turn to take and what it works off: one that was cut off, else a new one for what waits.

    What was sent here from elsewhere stands in the transcript before a new turn begins, and begins none itself.
    A message with files that is not among those that are ``ready`` goes on waiting, and is returned to be unpacked.
    """
    for turn in tx.turns.find(claim.session_id, running=True):
        taken = [item for item in tx.inbox.unsettled(claim.session_id) if item.turn_id == turn.id]
        return _gone_on(tx, claim.session_id, _work(tx, claim.session_id, turn.id, taken))
    _record_mirrored(tx, claim.session_id)
    turn_id = new_turn_id()
    items = tx.inbox.take(claim, turn_id)
    if not items:
        return None
    for item in items:
        admitted = read_admitted(item.payload)
        if admitted.attachments and item.id not in ready:
            tx.inbox.put_back(turn_id)
            return Packed(claim.session_id, item.id, admitted)
    tx.turns.begin(claim.session_id, turn_id)
    tx.messages.append(claim.session_id, [ready.get(item.id) or read_message(item.payload) for item in items])
    return _work(tx, claim.session_id, turn_id, items)


def _gone_on(tx: Transaction, session_id: SessionId, work: Work) -> Work:
    """Return a turn that was cut off, with the place to which its reply was sent meanwhile."""
    moved = rerouted(tx, session_id, work.turn_id)
    return structs.replace(work, route=moved.route, move=moved.move) if moved else work


def _work(tx: Transaction, session_id: SessionId, turn_id: TurnId, items: Sequence[InboxItem]) -> Work:
    messages = [read_admitted(item.payload) for item in items]
    meant = next((message.route for message in messages if message.route), None) or _home(tx, session_id)
    said = "\n".join(message.text for message in messages)
    senders = {message.sender for message in messages}
    sender = senders.pop() if len(senders) == 1 else UNKNOWN
    return Work(turn_id, tuple(item.id for item in items), meant, said, sender=sender)


def running_sender(tx: Transaction, session_id: SessionId) -> str | None:
    """Return who began the turn that is running in a conversation, in any process; ``None`` where none is running."""
    for turn in tx.turns.find(session_id, running=True, limit=1):
        taken = [item for item in tx.inbox.unsettled(session_id) if item.turn_id == turn.id]
        return _work(tx, session_id, turn.id, taken).sender
    return None


def _home(tx: Transaction, session_id: SessionId) -> Route | None:
    """Return where the reply to something goes that nobody said anywhere: to the place of the conversation."""
    bindings = tx.bindings.of_session(session_id)
    return Route(bindings[0].address) if bindings else None


def waiting_sessions(tx: Transaction, most: int = _AT_ONCE) -> list[SessionId]:
    """Return conversations that have something to be worked off and no owner, longest waiting first."""
    cut_off = [turn.session_id for turn in tx.turns.find(running=True) if not is_held(tx, lane_of(turn.session_id))]
    return list(dict.fromkeys([*cut_off, *tx.inbox.unowned(most)]))


def _log(store: Store, claim: SessionClaim, work: Work, finishing: Finishing) -> StoredTurn:
    fate = Fate()

    def finish(tx: Transaction, ending: Ending) -> None:
        tx.inbox.settle(work.items)
        moved = rerouted(tx, claim.session_id, work.turn_id)
        ending = structs.replace(ending, route=moved.route if moved else work.route)
        finishing(tx, ending)
        if moved is not None:  # whoever took the turn may know nothing of chats
            queue_end(tx, ending)
            fate.left = moved.move != work.move
        fate.was_last = moved is None and not tx.inbox.unsettled(claim.session_id)
        if fate.was_last:
            tx.leases.release(claim.lease)

    turn = StoredTurn(store, claim, work.turn_id, finish, route=work.route, items=work.items)
    turn.fate = fate
    turn.said = work.said
    turn.move = work.move
    turn.sender = work.sender
    return turn

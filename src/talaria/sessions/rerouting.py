"""A turn that goes on while its conversation moves: its reply goes to another place than was meant when it began."""

from contextlib import suppress

import msgspec
from msgspec import Struct

from talaria.contracts.store import Transaction
from talaria.core.addresses import Route
from talaria.core.errors import LeaseLost
from talaria.core.ids import SessionId, TurnId, new_id
from talaria.sessions.holding import lane_of


class Rerouted(Struct, frozen=True, omit_defaults=True):
    """Where the reply of a turn goes instead; without a route nobody is told but those who watch.

    ``move`` tells one move of a turn from another.
    """

    turn_id: TurnId
    move: str
    route: Route | None = None


_ROUTE = "route:"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Rerouted).decode


def reroute(tx: Transaction, session_id: SessionId, route: Route | None) -> Rerouted | None:
    """Send the reply of the running turn elsewhere, whoever runs it; ``None`` where no turn is running.

    Whoever runs it leaves what waits behind it to those at the new place.
    """
    held = tx.leases.get(lane_of(session_id))
    if held is not None:
        with suppress(LeaseLost):
            tx.leases.check(held)  # its owner cannot end the turn before this is committed
    for turn in tx.turns.find(session_id, running=True, limit=1):
        moved = Rerouted(turn.id, new_id(), route)
        tx.state.put(_key(session_id), _encode(moved).decode())
        return moved
    return None


def rerouted(tx: Transaction, session_id: SessionId, turn_id: TurnId) -> Rerouted | None:
    """Return where the reply of a turn goes now, if that was changed since it began."""
    entry = tx.state.get(_key(session_id))
    found = _decode(entry.value) if entry else None
    return found if found is not None and found.turn_id == turn_id else None


def moved_turns(tx: Transaction) -> list[tuple[SessionId, Rerouted]]:
    """Return the turns, with their conversations, that were moved and are running still."""
    found = [(SessionId(one.key.removeprefix(_ROUTE)), _decode(one.value)) for one in tx.state.with_prefix(_ROUTE)]
    running = {turn.id for turn in tx.turns.find(running=True)} if found else set()
    return [(session_id, moved) for session_id, moved in found if moved.turn_id in running]


def _key(session_id: SessionId) -> str:
    return f"{_ROUTE}{session_id}"

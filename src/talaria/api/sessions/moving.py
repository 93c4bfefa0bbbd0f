"""Let a conversation go on in a chat, as `talaria sessions move` does."""

import asyncio
from collections.abc import Collection

from talaria.api.problems import Problem, conflict
from talaria.api.sessions.wire import MoveRequest
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import Ambiguous, NotFound, Refused
from talaria.core.ids import SessionId
from talaria.sessions.channels import find_target
from talaria.sessions.homes import HANDOFFS, gateway_alive
from talaria.sessions.relocation import request_move

_LOOK_AGAIN = 0.05
_GOES_ON = ("pending", "running")


async def move(store: Store, session_id: SessionId, wanted: MoveRequest, networks: Collection[str]) -> None:
    """Ask a gateway for it and wait until it is done; raises a `Problem` where it is not, or not in time."""
    await store.write(lambda tx: _request(tx, session_id, wanted, networks))
    await store.hint(HANDOFFS)
    try:
        async with asyncio.timeout(wanted.timeout_seconds):
            while await _state(store, session_id) in _GOES_ON:  # noqa: ASYNC110 (no hint tells of the end)
                await asyncio.sleep(_LOOK_AGAIN)
    except TimeoutError:
        reason = f"no gateway was done with it within {wanted.timeout_seconds:g} s"
        await store.write(lambda tx: tx.handoffs.withdraw_handoff(session_id, reason))
    state = await store.read(lambda tx: tx.handoffs.get_handoff_state(session_id))
    if state is None or state["state"] != "completed":
        why = (state["error"] if state else None) or "it could not be moved"
        raise conflict(f"The session stays where it is: {why}.", code="not_moved")


def _request(tx: Transaction, session_id: SessionId, wanted: MoveRequest, networks: Collection[str]) -> None:
    if not networks:
        raise conflict("No chat network is set up.", code="no_network")
    try:
        to = find_target(tx, wanted.to, networks)
    except (NotFound, Ambiguous, Refused) as error:
        raise Problem(str(error), param="to", code="unknown_target") from error
    if not gateway_alive(tx):
        raise conflict("No gateway is running that could take it.", code="no_gateway")
    if not wanted.now and tx.turns.find(session_id, running=True, limit=1):
        words = "A turn is running there: wait for its end or stop it, then move it; with `now` it goes along."
        raise conflict(words, code="busy")
    request_move(tx, session_id, to, at_once=wanted.now)


async def _state(store: Store, session_id: SessionId) -> str | None:
    state = await store.read(lambda tx: tx.handoffs.get_handoff_state(session_id))
    return state["state"] if state else None

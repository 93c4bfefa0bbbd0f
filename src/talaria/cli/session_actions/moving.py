"""`talaria sessions move`: let a session go on in a chat."""

import argparse
import time
from collections.abc import Sequence

from msgspec import Struct

from talaria.cli.services import Services
from talaria.cli.session_actions.names import called, find_session
from talaria.contracts.store import Database, Transaction
from talaria.contracts.stores.handoffs import HandoffState
from talaria.contracts.stores.sessions import Session
from talaria.core.errors import Refused
from talaria.sessions.channels import find_target
from talaria.sessions.homes import gateway_alive
from talaria.sessions.relocation import request_move

_LOOK_AGAIN = 0.05
_GOES_ON = ("pending", "running")


class Moved(Struct, frozen=True, kw_only=True):
    """Where a session is now."""

    session_id: str
    platform: str
    chat_id: str
    thread_id: str


def move_session(arguments: argparse.Namespace, services: Services) -> None:
    """Ask a gateway for it, and wait until it is done."""
    networks = services.networks().names()
    if not networks:
        raise Refused("No chat network is set up: `talaria setup chat` asks for what one needs.")
    with services.open_database() as database:
        session = database.write(lambda tx: _request(tx, arguments, networks))
        over = _wait(database, session, arguments.timeout)
        if over["state"] != "completed":
            raise Refused(f"{called(session)} stays where it is: {over['error'] or 'it could not be moved'}.")
        moved = database.read(lambda tx: _moved(tx, session))
    if arguments.json:
        services.terminal.json(moved)
    else:
        thread = ", in a thread of its own" if moved.thread_id else ""
        services.terminal.line(f"{called(session)} was moved to {moved.platform} chat {moved.chat_id}{thread}.")


def _request(tx: Transaction, arguments: argparse.Namespace, networks: Sequence[str]) -> Session:
    session = find_session(tx, arguments.session)
    to = find_target(tx, arguments.target, networks)
    if not gateway_alive(tx):
        raise Refused("No gateway is running that could take it: `talaria gateway start` starts one.")
    if not arguments.now and tx.turns.find(session.id, running=True, limit=1):
        raise Refused("A turn is running there: wait for its end or stop it, then move it; `--now` takes it along.")
    request_move(tx, session.id, to, at_once=arguments.now)
    return session


def _wait(database: Database, session: Session, seconds: float) -> HandoffState:
    """Return how it ended; a request that nobody fulfils in time is withdrawn."""
    gone = HandoffState(state="failed", platform=None, error="it is not there any more")
    reason = f"no gateway was done with it within {seconds:g} s"
    deadline = time.monotonic() + seconds
    while (now := database.read(lambda tx: tx.handoffs.get_handoff_state(session.id)) or gone)["state"] in _GOES_ON:
        if time.monotonic() > deadline:
            database.write(lambda tx: tx.handoffs.withdraw_handoff(session.id, reason))
        time.sleep(_LOOK_AGAIN)
    return now


def _moved(tx: Transaction, session: Session) -> Moved:
    (binding, *_) = tx.bindings.of_session(session.id)
    place = binding.address
    return Moved(session_id=session.id, platform=place.platform, chat_id=place.chat_id, thread_id=place.thread_id)

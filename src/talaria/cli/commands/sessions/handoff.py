"""`talaria sessions move`: hand a session over to a chat."""

import argparse

from msgspec import Struct

from talaria.cli.services import Services
from talaria.cli.session_lookup import find_session, format_session_name
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.errors import Refused
from talaria.handoff.service import HandoffRequest, wait_for_handoff_blocking, write_request
from talaria.sessions.chat_directory import address_label


class MovedSession(Struct, frozen=True, kw_only=True):
    """Address of a session after its handoff."""

    session_id: str
    platform: str
    chat_id: str
    thread_id: str


def move_session(arguments: argparse.Namespace, services: Services) -> None:
    """Request the handoff and wait for its end; raises `Refused` if the session stays where it is."""
    networks = dict.fromkeys(services.networks().targets(), True)

    def request(tx: Transaction) -> Session:
        session = find_session(tx, arguments.session)
        write_request(tx, HandoffRequest(session.id, arguments.target, immediate=arguments.now), networks)
        return session

    with services.open_database() as database:
        session = database.write(request)
        end = wait_for_handoff_blocking(database, session.id, arguments.timeout)
        if end["state"] != "completed":
            raise Refused(f"{format_session_name(session)} stays where it is: {end['error'] or 'the handoff failed'}.")
        moved, where = database.read(lambda tx: _read_new_address(tx, session))
    if arguments.json:
        services.terminal.json(moved)
    else:
        services.terminal.line(f"{format_session_name(session)} has moved to {where}.")


def _read_new_address(tx: Transaction, session: Session) -> tuple[MovedSession, str]:
    """Return the address of a session, for programs and for people."""
    (binding, *_) = tx.bindings.of_session(session.id)
    address = binding.address
    moved = MovedSession(
        session_id=session.id, platform=address.platform, chat_id=address.chat_id, thread_id=address.thread_id
    )
    return moved, address_label(tx, address)

"""Recovery: resume the web app's conversations that a crash or restart has interrupted."""

import logging

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.errors import StoreError, TalariaError
from talaria.core.ids import SessionId
from talaria.runtime.turns import list_pending_sessions
from talaria.runtime.workers import is_leased, session_lease_name
from talaria.web.conversations import WebConversations
from talaria.web.front_door import SOURCE, WebCaller
from talaria.web.session_views import TAKEN_FROM

log = logging.getLogger(__name__)


async def resume_interrupted(store: Store, conversations: WebConversations) -> None:
    """Open conversations of the web app that have unfinished work and no process to do it."""
    try:
        found = await store.read(_find_interrupted)
    except StoreError as error:
        log.info("interrupted conversations of the web app wait: %s", error)
        return
    for session in found:
        if not conversations.runs(session.id):
            try:
                await conversations.open(session.id, WebCaller(person=session.owner))
            except TalariaError as error:
                log.warning("session %s can't be resumed: %s", session.id, error)


def _find_interrupted(tx: Transaction) -> list[Session]:
    unfinished = {turn.session_id for turn in tx.turns.find(running=True)} | set(list_pending_sessions(tx))
    found = (_find_abandoned(tx, session_id) for session_id in sorted(unfinished))
    return [session for session in found if session is not None]


def _find_abandoned(tx: Transaction, session_id: SessionId) -> Session | None:
    """Return a session if only the web app would continue it."""
    session = tx.sessions.get(session_id)
    if session is None or tx.bindings.of_session(session_id) or is_leased(tx, session_lease_name(session_id)):
        return None
    return session if session.source == SOURCE or TAKEN_FROM.get(tx, session_id) is not None else None

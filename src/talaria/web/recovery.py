"""Pending work of the web app's conversations: interrupted turns, waiting messages, results of background work."""

import asyncio
import logging

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.errors import StoreError, TalariaError
from talaria.core.ids import SessionId
from talaria.runtime.completions import WAKE
from talaria.runtime.turns import PENDING_SESSIONS, list_pending_sessions
from talaria.runtime.workers import is_leased, session_lease_name
from talaria.web.addresses import find_web_binding
from talaria.web.conversations import WebConversations
from talaria.web.front_door import SOURCE, WebCaller
from talaria.web.session_views import TAKEN_FROM

_CHECK_SECONDS = 30.0

log = logging.getLogger(__name__)


async def follow_pending_work(store: Store, conversations: WebConversations) -> None:
    """Resume pending work at the start, as notifications of it arrive, and from time to time, until cancelled."""
    loop, last = asyncio.get_running_loop(), -_CHECK_SECONDS
    async with store.subscribe(WAKE, PENDING_SESSIONS) as subscription:
        while True:
            is_notified = await subscription.wait()
            if is_notified or loop.time() - last >= _CHECK_SECONDS:
                last = loop.time()
                await _resume_pending(store, conversations)
                await conversations.sweep()


async def _resume_pending(store: Store, conversations: WebConversations) -> None:
    """Open conversations of the web app that have unfinished work and no process to do it."""
    try:
        found = await store.read(_find_pending)
    except StoreError as error:
        log.info("pending work of the web app waits: %s", error)
        return
    for session in found:
        if not conversations.runs(session.id):
            try:
                opened = await conversations.open(session.id, WebCaller(person=session.owner))
                opened.chat.conversation.wake()  # it may have been open already
            except TalariaError as error:
                log.warning("session %s can't be resumed: %s", session.id, error)


def _find_pending(tx: Transaction) -> list[Session]:
    unfinished = {turn.session_id for turn in tx.turns.find(running=True)} | set(list_pending_sessions(tx))
    found = (_find_abandoned(tx, session_id) for session_id in sorted(unfinished | set(tx.completions.waiting())))
    return [session for session in found if session is not None]


def _find_abandoned(tx: Transaction, session_id: SessionId) -> Session | None:
    """Return a session if only the web app would continue it."""
    session = tx.sessions.get(session_id)
    if session is None or is_leased(tx, session_lease_name(session_id)):
        return None
    if tx.bindings.of_session(session_id):
        return session if find_web_binding(tx, session_id) is not None else None
    return session if session.source == SOURCE or TAKEN_FROM.get(tx, session_id) is not None else None

"""Handoff worker: claim requested handoffs and carry them out through a `HandoffTarget`."""

import logging
from collections.abc import Collection, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from msgspec import structs

from talaria.contracts.platform import Content
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import HandoffThread, PendingHandoff
from talaria.core.addresses import Address, ReplyRoute
from talaria.core.errors import Rejected, StoreError, TalariaError
from talaria.core.ids import SessionId, TurnId
from talaria.core.messages import PROGRAM, Message, Text
from talaria.handoff.service import (
    ARRIVAL_PROMPT,
    ARRIVED,
    ARRIVED_MID_TURN,
    HANDOFFS,
    UNTITLED,
    HandoffDestination,
    HandoffLost,
    handoff_topic,
)
from talaria.runtime.active_session import bind_session, mark_own_thread
from talaria.runtime.live.control import redirect_running_turn
from talaria.runtime.outbox import queue_notice
from talaria.runtime.turns import make_arrival
from talaria.sessions.chat_directory import read_home

SOURCE = "handoff"
_CLAIM_DURATION = timedelta(seconds=45)  # longer than creating a thread and showing a typing notice may take

log = logging.getLogger(__name__)


class HandoffTarget(Protocol):
    """Interface to the chat networks of a gateway for handoffs."""

    @property
    def platforms(self) -> Collection[str]:
        """The networks that this worker serves."""

    def run_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that ends with the gateway at the latest."""

    async def create_thread(self, chat: Address, name: str) -> str:
        """Create a thread in a chat and return its id; empty if that fails or is not supported."""

    async def resolve(self, platform: str, chat: Address | None, thread_id: str) -> HandoffDestination:
        """Return the destination; raises `TalariaError` if it cannot be reached or no home chat is set."""

    def assign(self, tx: Transaction, destination: HandoffDestination) -> None:
        """Make this worker the one that serves the destination."""

    async def start(self, session_id: SessionId, destination: HandoffDestination, turn_id: TurnId | None) -> None:
        """Continue the session there; a moved turn is shown there while another process runs it."""


class HandoffWorker:
    """Worker that carries out the handoffs to the networks of one gateway, in parallel.

    After a crash the claim lapses, and the next worker continues with the thread that was created.
    """

    def __init__(self, store: Store, target: HandoffTarget) -> None:
        self._store = store
        self._target = target
        self._in_progress: set[SessionId] = set()

    async def serve(self) -> None:
        """Carry out requests as they arrive, until cancelled."""
        async with self._store.subscribe(HANDOFFS) as subscription:
            while True:
                await subscription.wait()
                try:
                    await self.start_pending()
                except StoreError as error:
                    log.warning("handoffs are delayed: %s", error)

    async def start_pending(self) -> int:
        """Start all pending and lapsed handoffs to the networks of this worker; return their number."""
        unclaimed = await self._store.read(_list_unclaimed)
        ours = [
            one.session_id
            for one in unclaimed
            if one.platform in self._target.platforms and one.session_id not in self._in_progress
        ]
        for session_id in ours:
            self._in_progress.add(session_id)
            self._target.run_task(self._claim_and_run(session_id))
        return len(ours)

    async def _claim_and_run(self, session_id: SessionId) -> None:
        try:
            handoff = await self._store.write(lambda tx: _claim(tx, session_id))
            if handoff is not None:
                await self._run(handoff)
        except StoreError as error:
            log.warning("session %s: its handoff is delayed: %s", session_id, error)
        finally:
            self._in_progress.discard(session_id)

    async def _run(self, handoff: PendingHandoff) -> None:
        """Carry out a claimed handoff; after any failure the session stays where it is."""
        try:
            destination = await self._resolve(handoff)
            turn_id = await self._store.write(lambda tx: self._bind(tx, handoff, destination))
        except HandoffLost:
            log.info("session %s: its handoff was cancelled", handoff.session_id)
        except StoreError:
            raise
        except TalariaError as error:
            await self._fail(handoff, str(error), forget_thread=isinstance(error, Rejected))
        except Exception as error:  # the requester gets an error after a bug too
            await self._fail(handoff, f"{type(error).__name__}: {error}")
            raise
        else:
            await self._target.start(handoff.session_id, destination, turn_id)

    async def _resolve(self, handoff: PendingHandoff) -> HandoffDestination:
        """Return the destination: a new thread if possible, else the chat itself."""
        chat = handoff.target
        thread_id = ""
        if chat is not None and not chat.thread_id:
            thread_id = await self._find_or_create_thread(handoff, chat)
        return await self._target.resolve(handoff.platform, chat, thread_id)

    async def _find_or_create_thread(self, handoff: PendingHandoff, chat: Address) -> str:
        if handoff.thread is not None and handoff.thread.chat_id == chat.chat_id:
            return handoff.thread.thread_id
        created = HandoffThread(chat.chat_id, await self._target.create_thread(chat, handoff.title or UNTITLED))
        await self._store.write(lambda tx: tx.handoffs.store_thread(handoff.session_id, created))
        return created.thread_id

    def _bind(self, tx: Transaction, handoff: PendingHandoff, destination: HandoffDestination) -> TurnId | None:
        """Complete the handoff, bind the session and queue a notice or prompt, all in one transaction.

        Returns the running turn that moves along. Raises `HandoffLost` if this worker no longer holds the claim.
        """
        session_id = handoff.session_id
        if not tx.handoffs.complete_handoff(session_id):
            raise HandoffLost("The handoff was cancelled.")
        tx.notify(handoff_topic(session_id))
        bind_session(tx, session_id, destination.key, destination.address)
        if destination.in_own_thread:
            mark_own_thread(tx, destination.key)
        self._target.assign(tx, destination)
        # A turn that started in the meantime moves along, because the process running it may not serve chats.
        if handoff.immediate or tx.turns.find(session_id, running=True, limit=1):
            turn_id = redirect_running_turn(tx, session_id, destination.route)
            notice = ARRIVED if turn_id is None else ARRIVED_MID_TURN
            queue_notice(tx, session_id, destination.address, Content(text=notice))
            return turn_id
        now = datetime.now(UTC)
        prompt = Text(ARRIVAL_PROMPT.format(platform=handoff.platform))
        message = Message(role="user", parts=(prompt,), at=now, author=PROGRAM)
        external_id = f"{session_id}:{now.isoformat()}"
        tx.inbox.add(make_arrival(session_id, SOURCE, external_id, message, route=ReplyRoute(destination.address)))
        return None

    async def _fail(self, handoff: PendingHandoff, reason: str, *, forget_thread: bool = False) -> None:
        log.warning("session %s: couldn't hand it off to %s: %s", handoff.session_id, handoff.platform, reason)

        def fail(tx: Transaction) -> None:
            tx.notify(handoff_topic(handoff.session_id))
            if tx.handoffs.fail_handoff(handoff.session_id, reason) and forget_thread:
                tx.handoffs.store_thread(handoff.session_id, None)

        await self._store.write(fail)


def _list_unclaimed(tx: Transaction) -> list[PendingHandoff]:
    return [*tx.handoffs.list_pending_handoffs(), *tx.handoffs.list_lapsed_handoffs()]


def _claim(tx: Transaction, session_id: SessionId) -> PendingHandoff | None:
    """Claim a handoff and return it with its target; without one, the target is the home chat."""
    if not tx.handoffs.claim_handoff(session_id, _CLAIM_DURATION):
        return None
    tx.notify(handoff_topic(session_id))
    handoff = tx.handoffs.find_active_handoff(session_id)
    if handoff is not None and handoff.target is None and (home := read_home(tx, handoff.platform)) is not None:
        return structs.replace(handoff, target=home.address)
    return handoff

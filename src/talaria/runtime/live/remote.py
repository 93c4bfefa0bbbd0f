"""Remote sessions: find where one runs, take it over, watch its turns, send messages and answers."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from talaria.contracts.platform import Content
from talaria.contracts.store import Store, Subscription, Transaction
from talaria.contracts.stores.queues import StreamEvent
from talaria.contracts.stores.sessions import Session
from talaria.core.addresses import WEB, Address
from talaria.core.errors import StoreError
from talaria.core.events import ApprovalAsked, TurnBegan
from talaria.core.ids import SessionId, TurnId, WorkerId, is_gone, new_id
from talaria.core.messages import Message
from talaria.runtime.active_session import bind_session
from talaria.runtime.live.control import (
    LIVE,
    WATCH_LEASE,
    AnswerQuestion,
    InboxChanged,
    end_watch,
    live_stream,
    post_control_message,
    redirect_running_turn,
    remove_lapsed_watches,
    renew_watch,
    send_control_message,
)
from talaria.runtime.live.feed import SNAPSHOT, FeedEvent, QuestionClosed, decode_chunk
from talaria.runtime.outbox import queue_notice
from talaria.runtime.turn_log import STEERING
from talaria.runtime.turns import PENDING_SESSIONS, make_arrival
from talaria.runtime.workers import is_platform_served, session_lease_name


async def send_to_session(
    store: Store,
    session_id: SessionId,
    message: Message,
    *,
    source: str,
    sender: str,
    steering: bool = False,
    external_id: str = "",
) -> bool:
    """Queue a message for a session; return whether a turn is running, which it joins if ``steering``.

    A message with the same source and ``external_id`` as an earlier one is ignored. The reply goes to the chat of the
    session. If no turn is running, a worker is notified of the pending message.
    """
    kind = STEERING if steering else "message"
    entry = make_arrival(session_id, source, external_id or new_id(), message, kind=kind, sender=sender)

    def work(tx: Transaction) -> bool:
        tx.inbox.add(entry)
        return notify_session(tx, session_id, steered=steering)

    return await store.write(work)


def notify_session(tx: Transaction, session_id: SessionId, *, steered: bool = False) -> bool:
    """Notify the process that serves a session of a change in its inbox; return whether a turn is running."""
    running = post_control_message(tx, session_id, InboxChanged(steered=steered))
    if not running:
        tx.notify(PENDING_SESSIONS)
    return running


class RemoteAnswers:
    """Implementation of `AnswerReceiver` for a turn in another process.

    ``start`` starts the task that sends an answer.
    """

    def __init__(
        self, store: Store, session_id: SessionId, start: Callable[[Coroutine[Any, Any, None]], object]
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._start = start
        self._open: dict[str, asyncio.Event] = {}
        self._asked: dict[str, ApprovalAsked] = {}
        self._over = False

    @property
    def approvals(self) -> list[ApprovalAsked]:
        """Unanswered approval requests, oldest first."""
        return list(self._asked.values())

    def note(self, event: FeedEvent) -> None:
        """Record a new approval request or a closed question."""
        if isinstance(event, ApprovalAsked):
            self._asked[event.id] = event
        elif isinstance(event, QuestionClosed):
            self._asked.pop(event.id, None)
            self._open.setdefault(event.id, asyncio.Event()).set()

    def answer(self, question_id: str, text: str) -> bool:
        """Send an answer; returns ``True`` even if another answer arrives first."""
        self._asked.pop(question_id, None)
        self._start(self._send(AnswerQuestion(question_id, text)))
        return True

    async def wait_until_closed(self, question_id: str) -> None:
        """Wait until a question is reported as closed."""
        if not self._over:
            await self._open.setdefault(question_id, asyncio.Event()).wait()

    def close_all(self) -> None:
        """Mark all questions as closed: the turn is over, or its questions are asked elsewhere."""
        self._over = True
        self._asked.clear()
        for event in self._open.values():
            event.set()

    async def _send(self, answer: AnswerQuestion) -> None:
        await send_control_message(self._store, self._session_id, answer)


_RENEW_INTERVAL = WATCH_LEASE.total_seconds() / 4
log = logging.getLogger(__name__)


class RemoteWatcher:
    """Watcher of one session; ``on_event`` is called with each event.

    Joining in the middle of a turn gives all its events so far. If another process resumes the turn, its events start
    again from the beginning.
    """

    def __init__(self, store: Store, session_id: SessionId, on_event: Callable[[FeedEvent], None]) -> None:
        self._store = store
        self._session_id = session_id
        self._on_event = on_event
        self._id = new_id()
        self._seq = 0
        self._run = ""
        self._renewed = 0.0

    async def follow(self) -> None:
        """Watch until cancelled; retry while the store is unavailable."""
        stream = live_stream(self._session_id)
        async with self._store.subscribe(stream) as subscription:
            try:
                while True:
                    await _wait_with_timeout(subscription, _RENEW_INTERVAL)
                    try:
                        await self._poll()
                    except StoreError as error:
                        log.info("session %s: can't watch it: %s", self._session_id, error)
            finally:
                await asyncio.shield(self._end())

    async def _poll(self) -> None:
        now = asyncio.get_running_loop().time()
        if not self._renewed or now - self._renewed > _RENEW_INTERVAL:
            joined_at = await self._store.write(self._renew)
            if joined_at is not None:
                self._seq, self._run = joined_at, ""
            self._renewed = now
        for event in await self._store.read(lambda tx: tx.events.after(live_stream(self._session_id), self._seq)):
            self._publish_chunk(event)

    def _renew(self, tx: Transaction) -> int | None:
        """Renew the registration; if it is new or had expired, return the number of the last event before it."""
        remove_lapsed_watches(tx)
        if renew_watch(tx, self._session_id, self._id):
            return None
        tx.notify(LIVE)
        return tx.events.append(live_stream(self._session_id), [])

    def _publish_chunk(self, event: StreamEvent) -> None:
        self._seq = event.seq
        chunk = decode_chunk(event.payload)
        if event.kind == SNAPSHOT:
            if chunk.run == self._run:
                return  # a snapshot for a watcher that joined later
        elif chunk.run != self._run and not isinstance(next(iter(chunk.events), None), TurnBegan):
            return  # a snapshot with the earlier events follows
        self._run = chunk.run
        for one in chunk.events:
            self._on_event(one)

    async def _end(self) -> None:
        try:
            await self._store.write(self._end_watch)
        except StoreError as error:
            log.info(
                "session %s: couldn't stop watching; it counts as watched for a while: %s", self._session_id, error
            )

    def _end_watch(self, tx: Transaction) -> None:
        end_watch(tx, self._session_id, self._id)
        tx.notify(LIVE)


async def _wait_with_timeout(subscription: Subscription, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await subscription.wait()
    except TimeoutError:
        pass


class SessionLocation(Struct, frozen=True, kw_only=True):
    """Chat of a session, its running turn, and the process (``owner``) that runs it."""

    chat: str = ""
    platform: str = ""
    turn_id: TurnId | None = None
    owner: WorkerId | None = None
    is_served: bool = False

    @property
    def is_running(self) -> bool:
        """Return whether a live process runs a turn of the session."""
        return self.turn_id is not None and self.owner is not None

    @property
    def description(self) -> str:
        """Return the location as sentences."""
        prefix = f"It is {self.chat}." if self.chat else "It is in the terminal."
        if self.turn_id is None:
            return f"{prefix} Nothing is running."
        if self.owner is None:
            return f"{prefix} A turn was interrupted there."
        machine, _, process = self.owner.rpartition(":")[0].rpartition(":")
        return f"{prefix} A turn is running, in process {process} on {machine.partition('/')[0]}."


def locate_session(tx: Transaction, session: Session) -> SessionLocation:
    """Return the current location of a session."""
    addresses = [binding.address for binding in tx.bindings.of_session(session.id)]
    running = tx.turns.find(session.id, running=True, limit=1)
    lease = tx.leases.get(session_lease_name(session.id))
    owner = lease.owner if lease is not None and not is_gone(lease.owner) else None
    address = addresses[0] if addresses else None
    return SessionLocation(
        chat=_describe_chat(address) if address else "",
        platform=address.platform if address else "",
        turn_id=running[0].id if running else None,
        owner=owner,
        is_served=bool((running and owner) or (address and is_platform_served(tx, address.platform))),
    )


def _describe_chat(address: Address) -> str:
    if address.platform == WEB:
        return "in the web app"
    thread = f", thread {address.thread_id}" if address.thread_id else ""
    return f"on {address.platform}, chat {address.chat_id}{thread}"


def take_over(tx: Transaction, session_id: SessionId, surface: str) -> TurnId | None:
    """Move a session with its running turn to a surface without an address; return the id of that turn.

    The chat where it was gets a notice that names the surface.
    """
    bind_session(tx, session_id, "", None, surface=surface)
    return redirect_running_turn(tx, session_id, None)


def quote_in_chat(tx: Transaction, session_id: SessionId, text: str, surface: str) -> None:
    """Show in the chat of a session what is said to it from another surface."""
    quoted = text.replace("\n", "\n> ")
    for binding in tx.bindings.of_session(session_id)[:1]:
        queue_notice(tx, session_id, binding.address, Content(text=f"From {surface}:\n> {quoted}"))

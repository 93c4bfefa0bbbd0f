"""Active session of a chat or terminal: open it, switch to another, bind and hand it off."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from typing import Any, Protocol

from msgspec import structs

from talaria.contracts.background_processes import end_processes
from talaria.contracts.platform import Content
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.queues import Arrival
from talaria.contracts.stores.sessions import SESSION_CHANGES, SessionChanges
from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address
from talaria.core.errors import Refused, StoreError
from talaria.core.events import TurnEnd
from talaria.core.formatting import platform_label
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import UNKNOWN, Message, Part
from talaria.runtime.agent_cache import AgentSpec
from talaria.runtime.completions import BATCH_WINDOW, WAKE, has_reports, queue_pending_reports
from talaria.runtime.open_session import OpenRequest, OpenSession, ResumeSession
from talaria.runtime.outbox import queue_notice
from talaria.runtime.questions import OpenQuestions
from talaria.runtime.runner import SessionRunner
from talaria.runtime.turn_environment import TurnSubscriber
from talaria.runtime.turns import MIRROR, PENDING_SESSIONS, format_handoff_notice
from talaria.runtime.workers import is_leased, session_lease_name
from talaria.sessions.context import build_surface_context, set_current_session_id

OWN_THREAD = NamedValue("own_thread", bool)  # by the session key of the thread


def bind_session(
    tx: Transaction, session_id: SessionId, key: str, address: Address | None, *, surface: str = "the terminal"
) -> None:
    """Bind a session to one address only; without an address, to a ``surface`` with no other readers.

    Withdraws a handoff that is in progress, and leaves a notice in the chat that the session was bound to before.
    """
    tx.handoffs.withdraw_handoff(session_id, "the conversation was resumed in another chat")
    for binding in tx.bindings.of_session(session_id):
        if binding.key != key:
            tx.bindings.unbind(binding.key)
            where = platform_label(address.platform) if address else surface
            text = f"This conversation has moved to {where}. Your next message here starts a new one."
            queue_notice(tx, session_id, binding.address, Content(text=text))
    if address is not None:
        tx.bindings.bind(key, session_id, address)
        tx.notify(SESSION_CHANGES)
    else:
        tx.sessions.update(session_id, SessionChanges(audience=""))


def move_pending_messages(tx: Transaction, source_id: SessionId, session_id: SessionId) -> None:
    """Move the pending messages of a session that was left to the one that replaces it."""
    for item in tx.inbox.list_unsettled(source_id):
        if item.state == "waiting" and item.kind != MIRROR:
            tx.inbox.settle([item.id])
            arrival = Arrival(
                session_id=session_id,
                source=item.source,
                external_id=f"{item.external_id}:{session_id}",
                payload=item.payload,
                kind=item.kind,
                priority=item.priority,
            )
            tx.inbox.add(arrival)


def mark_own_thread(tx: Transaction, key: str) -> None:
    """Record that a thread was created for a session: every message there is for the agent."""
    OWN_THREAD.write(tx, key, value=True)


def is_own_thread(tx: Transaction, address: Address, key: str) -> bool:
    """Return whether an address is a thread that was created for a session."""
    return bool(address.thread_id) and OWN_THREAD.get(tx, key) is not None


class _OpenConversation(Protocol):
    session_id: SessionId

    def hold(self, reason: str) -> None: ...

    def wake(self) -> None: ...


class Departure:
    """The handoff that was requested in a chat or terminal; ``session_id`` is ``None`` while there is none."""

    def __init__(self) -> None:
        self.session_id: SessionId | None = None
        self._platform = ""

    def begin(self, conversation: _OpenConversation, platform: str) -> None:
        """Hold the turns of a session that is about to be handed over."""
        self.session_id, self._platform = conversation.session_id, platform
        self.apply(conversation)

    def apply(self, conversation: _OpenConversation) -> None:
        """Hold the turns of this session if it is the one being handed over and was reopened."""
        if self.session_id == conversation.session_id:
            conversation.hold(format_handoff_notice(self._platform))

    def end(self, conversation: _OpenConversation | None, *, stays: bool) -> None:
        """Forget the handoff; a session that stays resumes with the messages sent meanwhile."""
        session_id, self.session_id = self.session_id, None
        if stays and conversation is not None and conversation.session_id == session_id:
            conversation.hold("")
            conversation.wake()


LeaveHook = Callable[[Transaction, SessionId], None]


class SessionOpener(Protocol):
    """Opener of sessions on one store."""

    @property
    def store(self) -> Store:
        """The store that holds the sessions."""

    async def open_session(self, request: OpenRequest, stack: AsyncExitStack, jobs: asyncio.TaskGroup) -> OpenSession:
        """Open a session whose tasks belong to ``jobs``; leaving ``stack`` closes it and all it opened."""

    async def agent_spec(self, request: OpenRequest) -> AgentSpec:
        """Return the spec of the agent that this session would get if it were opened now."""


class ActiveSession:
    """The open session of one terminal or chat; ``request`` describes how sessions are opened there.

    ``key`` and ``address`` identify the binding, so that the session is found again. Without both this is the only
    active session of the process, a terminal, and the environment names the open session. ``resume`` starts
    unfinished or transferred work of a session. ``departure`` is the handoff requested here. ``remote_questions`` holds
    the questions of a turn that another process runs for this chat.
    """

    def __init__(
        self,
        opener: SessionOpener,
        request: OpenRequest,
        on_event: TurnSubscriber,
        jobs: asyncio.TaskGroup,
        *,
        key: str = "",
        address: Address | None = None,
    ) -> None:
        self.opener = opener
        self.resume: Callable[[SessionRunner], None] = SessionRunner.wake
        self.request = request
        self.jobs = jobs
        self.key = key
        self._on_event = on_event
        self._address = address
        self._stack = AsyncExitStack()
        self._chat: OpenSession | None = None
        self._background_tasks: set[asyncio.Task[None]] = set()
        self._switch_lock = asyncio.Lock()
        self._closed = False
        self._is_terminal = address is None and not key
        self.departure = Departure()
        self.remote_questions: OpenQuestions | None = None

    @property
    def store(self) -> Store:
        """The store that holds the sessions."""
        return self.opener.store

    @property
    def chat(self) -> OpenSession:
        """The open session; raises `Refused` if there is none."""
        if self._chat is None:
            raise Refused("No conversation is open here yet.")
        return self._chat

    @property
    def is_open(self) -> bool:
        """Return whether a session is open; false for a moment during a switch."""
        return self._chat is not None

    @property
    def questions(self) -> OpenQuestions:
        """Open questions of the running turn, in whichever process it runs."""
        return self.remote_questions or self.chat.questions

    @property
    def session_id(self) -> SessionId:
        """Id of the open session."""
        return self.chat.conversation.session_id

    @property
    def busy(self) -> bool:
        """Return whether a turn of the open session is running."""
        return self._chat is not None and self._chat.conversation.busy

    async def open(self) -> OpenSession:
        """Open the session that the request names, and resume its unfinished work."""
        return await self._open(self.request)

    async def reset_session(
        self, *, leaving: LeaveHook = end_processes, moved_session: SessionId | None = None
    ) -> OpenSession:
        """Leave the session permanently, start a new one and end the old one's background work.

        ``leaving`` runs in the transaction that leaves the session, so that background work ends even after a crash.
        ``moved_session`` is the id of a session that was moved away: it is left unchanged, and replaced only if it is
        still the one open here and no other session has been bound to this key since.
        """
        request = structs.replace(self.request, session=None)
        if moved_session is not None:
            return await self._replace_moved_session(moved_session, request)
        left = self._chat
        chat = await self._switch_to(request, leaving)
        if left is not None:
            left.end_background_work()
        return chat

    async def move_to(self, session_id: SessionId) -> OpenSession:
        """Leave the session and switch to another, which is then bound to this chat only."""
        return await self._switch_to(structs.replace(self.request, session=ResumeSession(session_id)))

    async def renew(self) -> OpenSession:
        """Reopen the same session if its model or tools have changed.

        If the signature is unchanged, only the effort is updated. If the session cannot be opened, nothing changes.
        """
        request = structs.replace(self.request, session=ResumeSession(self.session_id))
        agent_spec = await self.opener.agent_spec(request)
        if agent_spec.signature == self.chat.signature:
            self.chat.conversation.set_effort(agent_spec.effort)
            return await self._activate(self.chat)
        async with self._switch_lock, AsyncExitStack() as stack:
            self._chat = chat = await self._open_session(request, stack)
            old_stack, self._stack = self._stack, stack.pop_all()
            await old_stack.aclose()
            return await self._activate(chat)

    async def wait_for_switch(self) -> SessionId:
        """Wait until no session switch is in progress, and return the id of the open session."""
        async with self._switch_lock:
            return self.chat.conversation.session_id

    async def put(self, *parts: Part, sender: str = UNKNOWN, steering: bool = False) -> None:
        """Queue a person's message; with ``steering``, it may join the running turn of the same sender."""
        message = Message(role="user", parts=parts, at=datetime.now(UTC))
        conversation = self.chat.conversation
        steering = steering and conversation.busy
        await conversation.put(
            message, source=self.request.surface.source, external_id=new_id(), sender=sender, steering=steering
        )

    def start_background_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task that outlives the session and is cancelled by `close` at the latest."""
        task = self.jobs.create_task(work)
        self._background_tasks.add(task)
        task.add_done_callback(self._background_tasks.discard)

    async def close(self) -> None:
        """Cancel background tasks and close the session, deleting it if it is empty."""
        for task in (background := tuple(self._background_tasks)):
            task.cancel()
        if background:
            await asyncio.wait(background)
        async with self._switch_lock:  # also closes a session that is being opened
            self._closed = True
            await self._close_and_discard()
        if self._is_terminal:
            set_current_session_id("")

    async def release(self) -> None:
        """Close the session but keep its workspace and processes; `open` finds them again."""
        if self._chat is None:
            return
        self.request = structs.replace(self.request, session=ResumeSession(self.session_id))
        self._chat.keep_workspace()
        await self._close()

    async def _open_session(self, request: OpenRequest, stack: AsyncExitStack) -> OpenSession:
        if self._closed:
            raise Refused("This chat is closed.")
        context = build_surface_context(request.surface.context, self.key, self._address)
        request = structs.replace(request, surface=structs.replace(request.surface, context=context))
        chat = await self.opener.open_session(request, stack, self.jobs)
        chat.events.subscribe(self._on_event)
        return chat

    async def _open(self, request: OpenRequest) -> OpenSession:
        async with self._switch_lock, AsyncExitStack() as stack:
            chat = await self._open_session(request, stack)
            self._stack = stack.pop_all()
            return await self._activate(chat)

    async def _switch_to(self, request: OpenRequest, leaving: LeaveHook | None = None) -> OpenSession:
        """Open another session, then leave this one; if opening fails, nothing changes."""
        async with self._switch_lock, AsyncExitStack() as stack:
            chat = await self._open_session(request, stack)
            left = self.session_id if self._chat is not None else None
            rebind = partial(self._rebind, left=left, session_id=chat.conversation.session_id, leaving=leaving)
            unfinished = await self.store.write(rebind)
            await self._close()
            self._stack = stack.pop_all()
            return await self._activate(chat, unfinished=unfinished)

    async def _replace_moved_session(self, session_id: SessionId, request: OpenRequest) -> OpenSession:
        async with self._switch_lock, AsyncExitStack() as stack:
            if self._chat is None or self.session_id != session_id:
                return self.chat
            chat = await self._open_session(request, stack)
            if not await self.store.write(lambda tx: self._bind_unless_bound(tx, chat.conversation.session_id)):
                return self.chat
            await self._close()
            self._stack = stack.pop_all()
            return await self._activate(chat, unfinished=False)

    async def _activate(self, chat: OpenSession, *, unfinished: bool | None = None) -> OpenSession:
        """Make a session the active one and resume its unfinished work.

        A message that arrives during the switch is processed by the runner that takes it.
        """
        self._chat = chat
        session_id = chat.conversation.session_id
        if self._is_terminal:
            set_current_session_id(session_id)
        self.departure.apply(chat.conversation)
        reported = self.request.surface.lasting and await queue_pending_reports(self.store, session_id, self.key)
        if unfinished is None:
            unfinished, abandoned = await self.store.read(
                lambda tx: (has_unfinished_work(tx, session_id), self._is_abandoned(tx, session_id))
            )
            if abandoned:
                reason = "the conversation was reopened in a terminal"
                await self.store.write(lambda tx: tx.handoffs.withdraw_handoff(session_id, reason))
        if reported or unfinished:
            self.resume(chat.conversation)
        chat.conversation.follow()
        return chat

    def _is_abandoned(self, tx: Transaction, session_id: SessionId) -> bool:
        """Return whether another terminal requested a handoff of this session and never completed it."""
        if self._address is not None or self.departure.session_id == session_id:
            return False
        return tx.handoffs.find_active_handoff(session_id) is not None

    def _rebind(
        self, tx: Transaction, left: SessionId | None, session_id: SessionId, leaving: LeaveHook | None
    ) -> bool:
        """Bind the key to another session, and return whether that session has unfinished work."""
        bound = tx.bindings.get(self.key)
        bind_session(tx, session_id, self.key, self._address)
        if left is not None and left != session_id:
            if leaving is not None:
                leaving(tx, left)
            if bound is not None and bound.session_id == left:  # otherwise it has moved, with its pending messages
                move_pending_messages(tx, left, session_id)
            _delete_if_empty(tx, left)
        return has_unfinished_work(tx, session_id)

    def _bind_unless_bound(self, tx: Transaction, session_id: SessionId) -> bool:
        if tx.bindings.get(self.key) is not None:  # a message after the move has started a session
            _delete_if_empty(tx, session_id)
            return False
        bind_session(tx, session_id, self.key, self._address)
        return True

    async def _close_and_discard(self) -> None:
        """Close the session, if one is open, and delete it if it is empty."""
        if self._chat is None:
            return
        session_id = self.session_id
        await self._close()
        await self.store.write(lambda tx: _delete_if_empty(tx, session_id))

    async def _close(self) -> None:
        self._chat = None
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()


def has_unfinished_work(tx: Transaction, session_id: SessionId) -> bool:
    """Return whether a session has a running turn or pending messages."""
    return bool(tx.inbox.list_unsettled(session_id) or tx.turns.find(session_id, running=True, limit=1))


def _delete_if_empty(tx: Transaction, session_id: SessionId) -> None:
    session = tx.sessions.get(session_id)
    if session is None or session.message_count or session.title or session.parent_id:
        return
    if not tx.inbox.list_unsettled(session_id):
        tx.sessions.delete(session_id)


log = logging.getLogger(__name__)


async def deliver_completions(active_session: ActiveSession) -> None:
    """Queue completions for the open session, and run messages of other processes, as they arrive, until cancelled."""
    async with active_session.store.subscribe(WAKE, PENDING_SESSIONS) as subscription:
        while True:
            await subscription.wait()
            try:
                await _deliver_once(active_session)
                await _run_unclaimed_messages(active_session)
            except StoreError as error:
                log.warning("completions and messages will be processed later: %s", error)


async def _deliver_once(active_session: ActiveSession) -> None:
    if not active_session.is_open or not await has_reports(active_session.store, active_session.session_id):
        return
    await asyncio.sleep(BATCH_WINDOW)
    if active_session.is_open:
        conversation = active_session.chat.conversation
        if await queue_pending_reports(active_session.store, conversation.session_id, active_session.key):
            conversation.wake()


async def _run_unclaimed_messages(active_session: ActiveSession) -> None:
    """Run messages that came after the turn they were sent to, for a session that only a terminal has open."""
    if active_session.key or active_session.busy or not active_session.is_open:
        return
    conversation = active_session.chat.conversation
    if await active_session.store.read(lambda tx: _has_unclaimed_messages(tx, conversation.session_id)):
        conversation.wake()


def _has_unclaimed_messages(tx: Transaction, session_id: SessionId) -> bool:
    if tx.bindings.of_session(session_id) or is_leased(tx, session_lease_name(session_id)):
        return False  # a chat or another process answers them
    return any(item.state == "waiting" and item.kind != MIRROR for item in tx.inbox.list_unsettled(session_id))


async def open_and_run_pending(
    opener: SessionOpener, request: OpenRequest, jobs: asyncio.TaskGroup, on_event: TurnSubscriber
) -> TurnEnd | None:
    """Run the pending turns of a session, and return how the last one ended.

    Raises `Refused` while another process runs the session. An interrupted turn continues with the next call, in any
    process.
    """
    async with AsyncExitStack() as stack:
        chat = await opener.open_session(request, stack, jobs)
        chat.events.subscribe(on_event)
        return await chat.conversation.run_pending_turns()

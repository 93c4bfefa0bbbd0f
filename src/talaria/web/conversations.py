"""Conversations that run in this process for the web app: open sessions, their questions, pending work."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

from talaria.commands.application import Application
from talaria.contracts.background_processes import end_processes
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import Session
from talaria.contracts.turns import TurnResult
from talaria.core.addresses import WEB, Address
from talaria.core.errors import StoreError, TalariaError
from talaria.core.events import ApprovalAsked, QuestionAsked, TurnEvent
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import UNKNOWN, Part
from talaria.core.session_context import SessionContext
from talaria.runtime.active_session import ActiveSession, LeaveHook, deliver_completions, has_unfinished_work
from talaria.runtime.completions import WAKE
from talaria.runtime.live.feed import QuestionClosed
from talaria.runtime.live.remote import locate_session
from talaria.runtime.open_session import OpenRequest, OpenSession, ResumeSession, SurfaceInfo
from talaria.runtime.outbox import queue_turn_result
from talaria.runtime.runner import RunnerState
from talaria.runtime.turns import PENDING_SESSIONS, TurnOptions, list_pending_sessions
from talaria.runtime.workers import is_leased, session_lease_name
from talaria.sessions.keys import build_session_key
from talaria.web.front_door import SOURCE, WebCaller
from talaria.web.hub import LiveHub
from talaria.web.notifications import Notifier, WebNotification
from talaria.web.session_views import TAKEN_FROM, answers_elsewhere, find_web_binding, new_thread

_SURFACE = "You are in a web page that renders Markdown: tables, lists and code blocks with a language look good."
_CHOICE_TIMEOUT = 300.0
FILE_LIMIT = 50_000_000  # bytes of a file that the agent sends
_CHECK_SECONDS = 30.0
log = logging.getLogger(__name__)


class WebSession(ActiveSession):
    """An open conversation of the web app. Switching commands open another one; this one stays as it is."""

    def __init__(
        self, conversations: "WebConversations", request: OpenRequest, caller: WebCaller, address: Address | None
    ) -> None:
        name = request.session.name if isinstance(request.session, ResumeSession) else ""
        key = build_session_key(address) if address is not None else f"{SOURCE}:{name}"
        super().__init__(
            conversations.application, request, self._publish, conversations.jobs, key=key, address=address
        )
        self._conversations = conversations
        self.caller = caller
        self.used_at = monotonic()
        self._next: WebSession | None = None

    @property
    def is_busy(self) -> bool:
        """Return whether it must stay open: a turn or its follow-up work is running."""
        return not self.is_open or self.chat.conversation.has_running_work

    async def reset_session(
        self, *, leaving: LeaveHook = end_processes, moved_session: SessionId | None = None
    ) -> OpenSession:
        """Begin another conversation, to be shown next; after a handoff nothing has to be replaced."""
        if moved_session is not None:
            return self.chat
        return self._show_next(await self._conversations.begin(self.caller))

    async def move_to(self, session_id: SessionId) -> OpenSession:
        """Open another conversation, to be shown next."""
        return self._show_next(await self._conversations.open(session_id, self.caller))

    async def put(self, *parts: Part, sender: str = UNKNOWN, steering: bool = False) -> None:
        """Queue a person's message, in the conversation to which the running command has switched."""
        if self._next is not None:
            await self._next.put(*parts, sender=sender, steering=steering)
        else:
            await super().put(*parts, sender=sender, steering=steering)

    async def finish_ended_turn(self) -> None:
        """Wait for the last steps of a turn that has ended in the store, so that no command is refused."""
        if self.busy and not await self.store.read(lambda tx: has_unfinished_work(tx, self.session_id)):
            with suppress(TalariaError):
                await self.chat.conversation.wait_until_idle()

    def take_next(self) -> str:
        """Return the conversation that a command wants shown next, once; empty if it is this one."""
        shown, self._next = self._next, None
        return shown.session_id if shown is not None else ""

    def _show_next(self, other: "WebSession") -> OpenSession:
        self._next = other if other is not self else None
        return other.chat

    def _publish(self, event: TurnEvent) -> None:
        self.used_at = monotonic()
        channel = self._conversations.hub.get_channel(self.session_id)
        channel.publish(event)
        if isinstance(event, ApprovalAsked | QuestionAsked):
            self.start_background_task(self._watch_question(event.id))
            self.start_background_task(self._notify_asked(event))

    async def _notify_asked(self, event: ApprovalAsked | QuestionAsked) -> None:
        text = event.summary if isinstance(event, ApprovalAsked) else event.question
        notification = WebNotification("asked", self.session_id, self.chat.title, text)
        await self._conversations.notifier.notify(self.caller.person, notification)

    async def _watch_question(self, question_id: str) -> None:
        await self.chat.questions.wait_until_closed(question_id)
        self._conversations.hub.get_channel(self.session_id).publish(QuestionClosed(question_id))


class WebReplyListener:
    """Listener that queues replies for the outbox of the web app; implements `TurnListener`.

    The page shows a reply while it is written; delivery decides whether its person has to be notified.
    """

    def turn_ended(self, tx: Transaction, result: TurnResult) -> None:
        """Queue the result of a turn that is answered here."""
        if result.route is not None and result.route.address.platform == WEB:
            queue_turn_result(tx, result)


class WebConversations:
    """The open conversations of this process."""

    def __init__(
        self,
        application: Application,
        hub: LiveHub,
        notifier: Notifier,
        jobs: asyncio.TaskGroup,
        folder: Path,
        idle_seconds: float,
    ) -> None:
        self.application = application
        self.hub = hub
        self.notifier = notifier
        self.jobs = jobs
        self._folder = folder
        self._idle_seconds = idle_seconds
        self._open: dict[SessionId, WebSession] = {}
        self._lock = asyncio.Lock()
        self._choices: dict[str, asyncio.Future[str]] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def running(self) -> int:
        """The number of conversations that are busy."""
        return sum(one.is_busy for one in self._open.values())

    def find(self, session_id: SessionId) -> WebSession | None:
        """Return an open conversation."""
        return self._open.get(session_id)

    def is_running(self, session_id: SessionId) -> bool:
        """Return whether a turn of a conversation is running here."""
        session = self._open.get(session_id)
        return session is not None and session.busy

    def context_limit(self, session_id: SessionId) -> int:
        """Return the context limit of an open conversation's model; 0 if it isn't open."""
        session = self._open.get(session_id)
        return session.chat.info.context_limit if session is not None and session.is_open else 0

    async def open(self, session_id: SessionId, caller: WebCaller) -> WebSession:
        """Return a conversation, opened here if it is not; its unfinished work resumes."""
        async with self._lock:
            found = self._open.get(session_id)
            if found is not None and found.is_open and found.chat.conversation.state is not RunnerState.MOVED:
                found.used_at = monotonic()
                return found
            if found is not None:
                await self._close(session_id)
            binding = await self.application.store.read(lambda tx: find_web_binding(tx, session_id))
            address = binding.address if binding is not None else None
            return await self._add(WebSession(self, self._make_request(caller, session_id), caller, address))

    async def begin(self, caller: WebCaller) -> WebSession:
        """Begin a new conversation, bound to an address of its own."""
        async with self._lock:
            address = new_thread(caller.person)
            session = await self._add(WebSession(self, self._make_request(caller), caller, address))
            bound_id, key = session.session_id, session.key
            await self.application.store.write(lambda tx: tx.bindings.bind(key, bound_id, address))
            return session

    async def forget(self, session_id: SessionId) -> None:
        """Close a conversation that was deleted or is continued elsewhere."""
        async with self._lock:
            await self._close(session_id)

    async def sweep(self) -> None:
        """Close conversations that have been idle for long."""
        async with self._lock:
            now = monotonic()
            for session_id, one in list(self._open.items()):
                if not one.is_busy and now - one.used_at > self._idle_seconds:
                    await self._close(session_id)

    async def wait_until_idle(self) -> None:
        """Wait until no turn is running."""
        for session in list(self._open.values()):
            if session.busy:
                with suppress(TalariaError):
                    await session.chat.conversation.wait_until_idle()

    async def close(self) -> None:
        """Close all conversations; running turns resume when they are opened again."""
        async with self._lock:
            for session_id in list(self._open):
                await self._close(session_id)

    async def choose(self, session_id: SessionId, question: str, choices: Sequence[str]) -> int | None:
        """Ask in the conversation for one of some choices; ``None`` if nobody answers in time."""
        question_id, channel = new_id(), self.hub.get_channel(session_id)
        answer = self._choices[question_id] = asyncio.get_running_loop().create_future()
        channel.publish(QuestionAsked(question_id, question, tuple(choices)))
        try:
            async with asyncio.timeout(_CHOICE_TIMEOUT):
                chosen = await answer
        except TimeoutError:
            return None
        finally:
            del self._choices[question_id]
            channel.publish(QuestionClosed(question_id))
        return choices.index(chosen) if chosen in choices else None

    def answer(self, session_id: SessionId, question_id: str, text: str) -> bool:
        """Answer a question that was asked in this process; ``False`` if there is none."""
        if (choice := self._choices.get(question_id)) is not None and not choice.done():
            choice.set_result(text)
            return True
        session = self._open.get(session_id)
        return session is not None and session.is_open and session.chat.questions.answer(question_id, text)

    async def _add(self, session: WebSession) -> WebSession:
        await session.open()
        session.start_background_task(deliver_completions(session))
        self._open[session.session_id] = session
        return session

    async def _close(self, session_id: SessionId) -> None:
        session = self._open.pop(session_id, None)
        if session is not None:
            if session.is_open:
                session.chat.keep_workspace()
            await session.close()

    def _make_request(self, caller: WebCaller, session_id: str = "") -> OpenRequest:
        return OpenRequest(
            surface=SurfaceInfo(
                source=SOURCE,
                folder=self._folder,
                instructions=_SURFACE,
                context=SessionContext(source=SOURCE, user_name=caller.person),
                lasting=True,
                file_limit=FILE_LIMIT,
            ),
            session=ResumeSession(session_id) if session_id else None,
            turns=TurnOptions(listeners=(WebReplyListener(),)),
            owner=caller.person,
        )


async def is_elsewhere(store: Store, conversations: WebConversations, session: Session) -> bool:
    """Return whether another process serves a conversation."""
    if conversations.is_running(session.id):  # before the read: a turn that ends meanwhile isn't another process's
        return False
    return answers_elsewhere(await store.read(lambda tx: locate_session(tx, session)), runs_here=False)


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
        if not conversations.is_running(session.id):
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

"""Session followed from another terminal: watch it, send messages, take it over."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

from talaria.cli.chat.approval import TerminalAsks, answer_in_terminal
from talaria.cli.chat.options import SOURCE
from talaria.cli.session_lookup import format_session_name
from talaria.commands.session_lookup import render_last_exchange
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.errors import Refused
from talaria.core.events import ApprovalAsked, QuestionAsked, TurnBegan, TurnEnd
from talaria.core.messages import OWNER, Message, Text
from talaria.runtime.live.control import StopTurn, send_control_message
from talaria.runtime.live.feed import FeedEvent
from talaria.runtime.live.remote import (
    RemoteAnswers,
    RemoteWatcher,
    SessionLocation,
    locate_session,
    quote_in_chat,
    send_to_session,
    take_over,
)
from talaria.sessions.branches import list_exchanges

_POLL_SECONDS = 1.0
_RECENT_MESSAGES = 60
_HELP = (
    "While you watch, you can use `/stop`, `/steer TEXT`, `/take` and `/detach`. Everything else works after `/take`."
)
_NO_WORKER = "No process is running this conversation, so nobody would answer. Use `/take` to continue it here."
_STEERED = "If the running turn is yours, it joins at the next step. Otherwise it gets its own turn next."
_WORKER_GONE = "The process that ran this conversation is gone. It resumes when another process takes over …"


def render_previous_exchange(tx: Transaction, session: Session) -> str:
    """Return the last finished exchange; a running turn shows its own messages."""
    messages = tx.messages.last(session.id, _RECENT_MESSAGES)
    starts = list_exchanges(messages)
    if starts and tx.turns.find(session.id, running=True, limit=1):
        messages = [one for one in messages if one.seq < starts[-1].seq]
    return render_last_exchange(messages)


class AttachedSession:
    """Session followed from another process.

    ``show_event`` shows an event, ``report`` a sentence, ``asks`` puts questions to the user.

    ``finished`` is set when the user leaves; ``taken`` is true once they have taken over the session.
    """

    def __init__(
        self,
        store: Store,
        session: Session,
        show_event: Callable[[FeedEvent], None],
        report: Callable[[str], None],
        asks: TerminalAsks | None,
        jobs: asyncio.TaskGroup,
    ) -> None:
        self.session = session
        self.busy = self.taken = False
        self.finished = asyncio.Event()
        self._store = store
        self._show_event = show_event
        self._report = report
        self._asks = asks
        self._jobs = jobs
        self._answers = RemoteAnswers(store, session.id, jobs.create_task)
        self._reported_gone = False

    async def follow(self) -> None:
        """Show events until the user leaves."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(RemoteWatcher(self._store, self.session.id, self._on_event).follow())]
            tasks.append(group.create_task(self._poll_location()))
            await self.finished.wait()
            self._answers.close_all()
            for task in tasks:
                task.cancel()

    async def act(self, line: str) -> None:
        """Run a command or send a message; raises `Refused` if that is not possible."""
        name, _, arguments = line.partition(" ")
        match name:
            case "/detach" | "/quit" | "/exit":
                self.finished.set()
            case "/stop":
                await self.stop()
            case "/take":
                await self.take()
            case "/steer" if arguments.strip():
                await self._send(arguments.strip(), steering=True)
            case "?":
                raise Refused(_HELP)
            case _ if name.startswith("/") and "/" not in name[1:]:
                raise Refused(_HELP)
            case _:
                await self._send(line, steering=False)

    async def stop(self) -> None:
        """Stop the running turn; raises `Refused` if there is none."""
        if not await send_control_message(self._store, self.session.id, StopTurn()):
            raise Refused("Nothing is running.")

    async def take(self) -> None:
        """Move the session and its running turn to this terminal; the old chat shows where it went."""

        self.taken = True
        running = await self._store.write(lambda tx: take_over(tx, self.session.id, "the terminal"))
        if running is None:
            self.finished.set()
        else:
            self._report("You took over the conversation. The current reply continues below.")

    async def _send(self, text: str, *, steering: bool) -> None:
        """Send a message to the session; its chat shows the text. Raises `Refused` if no worker serves it."""
        location = await self._store.read(lambda tx: locate_session(tx, self.session))
        if not location.is_served:
            raise Refused(_NO_WORKER)
        await self._store.write(lambda tx: quote_in_chat(tx, self.session.id, text, "the terminal"))
        message = Message(role="user", parts=(Text(text),), at=datetime.now(UTC))
        running = await send_to_session(
            self._store, self.session.id, message, source=SOURCE, sender=OWNER, steering=steering
        )
        if running:
            self._report(_STEERED if steering else "Queued after the running turn.")

    def _on_event(self, event: FeedEvent) -> None:
        self._answers.note(event)
        if isinstance(event, TurnBegan):
            self.busy, self._reported_gone = True, False
        elif isinstance(event, TurnEnd):
            self.busy = False
        self._show_event(event)
        if isinstance(event, ApprovalAsked | QuestionAsked) and self._asks is not None:
            self._jobs.create_task(answer_in_terminal(event, self._answers, self._asks))
        if self.taken and isinstance(event, TurnEnd):
            self.finished.set()

    async def _poll_location(self) -> None:
        """Detect changes without events: a dead process, a missed end of a turn, a moved session."""
        chat: str | None = None
        while True:
            location = await self._store.read(lambda tx: locate_session(tx, self.session))
            if chat not in (None, location.chat) and not self.taken:
                self._report(f"The conversation has moved. {location.description}")
            chat = location.chat
            if location.turn_id is None:
                self.busy = False
            if self.taken and (location.turn_id is None or location.owner is None):
                self.finished.set()
            elif location.turn_id is not None and location.owner is None and not self._reported_gone:
                self._reported_gone = True
                self._report(_WORKER_GONE)
            await asyncio.sleep(_POLL_SECONDS)


def format_attach_heading(session: Session, location: SessionLocation) -> str:
    """Return the first line of the view."""
    return f"Watching {format_session_name(session)}. {location.description} {_HELP}"

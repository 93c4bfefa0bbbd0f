"""Session followed from another terminal: watch it, send messages, take it over; as plain text or JSON lines."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from datetime import UTC, datetime

import msgspec

from talaria.cli.chat.approval import TerminalAsks, answer_in_terminal, parse_decision
from talaria.cli.chat.event_printer import TextPrinter
from talaria.cli.chat.line_reader import LineReader, format_approval_prompt
from talaria.cli.chat.options import SOURCE
from talaria.cli.services import Services
from talaria.cli.session_lookup import find_session, format_session_name
from talaria.cli.terminal import Terminal
from talaria.commands.session_lookup import render_last_exchange
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import Session
from talaria.core.aio import first_error
from talaria.core.errors import Refused, TalariaError
from talaria.core.events import ApprovalAsked, QuestionAsked, TurnBegan, TurnEnd
from talaria.core.ids import SessionId
from talaria.core.messages import OWNER, Message, Text
from talaria.runtime.live.control import StopTurn, send_control_message
from talaria.runtime.live.feed import FeedEvent, QuestionClosed
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


def render_previous_exchange(tx: Transaction, session: Session) -> str:
    """Return the last finished exchange; a running turn shows its own messages."""
    messages = tx.messages.last(session.id, _RECENT_MESSAGES)
    starts = list_exchanges(messages)
    if starts and tx.turns.find(session.id, running=True, limit=1):
        messages = [one for one in messages if one.seq < starts[-1].seq]
    return render_last_exchange(messages)


def format_attach_heading(session: Session, location: SessionLocation) -> str:
    """Return the first line of the view."""
    return f"Watching {format_session_name(session)}. {location.description} {_HELP}"


def print_events(arguments: argparse.Namespace, services: Services) -> int:
    """Print each event as a line of JSON until interrupted."""
    try:
        asyncio.run(_print_events(arguments, services))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    return 0


def watch_in_plain_terminal(arguments: argparse.Namespace, services: Services) -> SessionId | str:
    """Show a session as lines of text until the user leaves; return it if taken over.

    Without a keyboard nothing is read, and a signal ends it.
    """
    try:
        return asyncio.run(_watch_in_lines(arguments, services))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors


async def _print_events(arguments: argparse.Namespace, services: Services) -> None:
    terminal = services.terminal

    def print_event(value: object) -> None:
        terminal.document(f"{msgspec.json.encode(value).decode()}\n", flush=True)

    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        store = services.load_application()(stack).store
        session = await store.read(lambda tx: find_session(tx, arguments.session))
        location = await store.read(lambda tx: locate_session(tx, session))
        opened = {"type": "attached", "session": session.id, "title": session.title, "chat": location.chat}
        print_event({**opened, "running": location.turn_id is not None})
        attached = AttachedSession(store, session, print_event, terminal.note, None, jobs)
        _leave_on_signals(attached)
        await attached.follow()


async def _watch_in_lines(arguments: argparse.Namespace, services: Services) -> SessionId | str:
    terminal = services.terminal
    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        store: Store = services.load_application()(stack).store
        session = await store.read(lambda tx: find_session(tx, arguments.session))
        location, recent = await store.read(
            lambda tx: (locate_session(tx, session), render_previous_exchange(tx, session))
        )
        terminal.note(format_attach_heading(session, location))
        if recent:
            terminal.line(recent)
        lines = _Lines(terminal)
        attached = AttachedSession(store, session, lines.show_event, terminal.note, lines, jobs)
        _leave_on_signals(attached)
        reader_task = jobs.create_task(_read_lines(attached, lines)) if sys.stdin.isatty() else None
        await attached.follow()
        if reader_task is not None:
            reader_task.cancel()
    return session.id if attached.taken else ""


def _leave_on_signals(attached: AttachedSession) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, attached.finished.set)


async def _read_lines(attached: AttachedSession, lines: "_Lines") -> None:
    """Act on typed lines until the input ends."""
    while not attached.finished.is_set():
        line = await lines.keyboard.read_line("")
        if line is None:
            attached.finished.set()
        elif line and not lines.answer(line):
            try:
                await attached.act(line)
            except TalariaError as error:
                lines.report(str(error))


class _Lines:
    """Text output of events, and `TerminalAsks`: lines typed while a question is open answer it."""

    def __init__(self, terminal: Terminal) -> None:
        self.keyboard = LineReader(terminal)
        self._terminal = terminal
        self._printer = TextPrinter(terminal)
        self._pending_answers: list[asyncio.Future[str]] = []
        self._approval: asyncio.Future[str] | None = None
        self._approval_lock = asyncio.Lock()

    def show_event(self, event: FeedEvent) -> None:
        if isinstance(event, QuestionClosed):
            return
        if isinstance(event, TurnBegan) and event.text:
            author = event.route.user_name if event.route else ""
            self._terminal.note(self._terminal.style(f"> {f'{author}: ' if author else ''}{event.text}", "bold"))
        self._printer.print_event(event)

    def report(self, text: str) -> None:
        self._terminal.note(text)

    def answer(self, line: str) -> bool:
        """Use a line as the answer to the open question; ``False`` if there is none or it is no answer."""
        if self._approval is not None and not self._approval.done():
            decision = parse_decision(line)
            if decision is not None:
                self._approval.set_result(decision)
            return decision is not None
        unanswered = [one for one in self._pending_answers if not one.done()]
        if not unanswered or line.startswith("/"):
            return False
        unanswered[0].set_result(line)
        return True

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        listed = "\n".join(f"{number}. {choice}" for number, choice in enumerate(choices, 1))
        typed = await self._read_answer(f"{self._terminal.style(question, 'bold')}\n{listed}\n1 to {len(choices)}:")
        return int(typed) - 1 if typed.isdecimal() and 0 < int(typed) <= len(choices) else None

    async def approve(self, asked: ApprovalAsked) -> str:
        async with self._approval_lock:
            self.keyboard.show_approval(asked)
            self._terminal.note(format_approval_prompt(asked))
            self._approval = asyncio.get_running_loop().create_future()
            try:
                decision = await self._approval
            finally:
                self._approval = None
            self.keyboard.show_decision(asked, decision)
            return decision

    async def wait_for_attention(self) -> None:
        return

    async def ask(self, question: str) -> str:
        return await self._read_answer(self._terminal.style(question, "bold"))

    async def _read_answer(self, question: str) -> str:
        self._terminal.note(question)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._pending_answers.append(answer)
        try:
            return await answer
        finally:
            self._pending_answers.remove(answer)

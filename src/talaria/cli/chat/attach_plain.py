"""Plain output of `talaria attach`: text lines for people, JSON lines for scripts."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

import msgspec

from talaria.cli.chat.approval import parse_decision
from talaria.cli.chat.attach import AttachedSession, format_attach_heading, render_previous_exchange
from talaria.cli.chat.event_printer import TextPrinter
from talaria.cli.chat.line_reader import LineReader, format_approval_prompt
from talaria.cli.output.terminal import Terminal
from talaria.cli.services import Services
from talaria.cli.session_lookup import find_session
from talaria.contracts.store import Store
from talaria.core.aio import first_error
from talaria.core.errors import TalariaError
from talaria.core.events import ApprovalAsked, TurnBegan
from talaria.core.ids import SessionId
from talaria.runtime.live.feed import FeedEvent, QuestionClosed
from talaria.runtime.live.remote import locate_session


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
        return asyncio.run(_watch(arguments, services))
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


async def _watch(arguments: argparse.Namespace, services: Services) -> SessionId | str:
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
        line = await lines.keyboard.line("")
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
            self._terminal.note(self._terminal.styled(f"> {f'{author}: ' if author else ''}{event.text}", "bold"))
        self._printer.event(event)

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
        typed = await self._read_answer(f"{self._terminal.styled(question, 'bold')}\n{listed}\n1 to {len(choices)}:")
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
        return await self._read_answer(self._terminal.styled(question, "bold"))

    async def _read_answer(self, question: str) -> str:
        self._terminal.note(question)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._pending_answers.append(answer)
        try:
            return await answer
        finally:
            self._pending_answers.remove(answer)

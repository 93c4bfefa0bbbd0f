"""`talaria attach` by lines: of text for people, of JSON for scripts."""

import argparse
import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack

import msgspec

from talaria.cli.approval import decision_of
from talaria.cli.attached import Attached, heading, what_was_said, whereabouts
from talaria.cli.line_reader import APPROVAL, LineReader
from talaria.cli.services import Services
from talaria.cli.session_actions.names import find_session
from talaria.cli.showing import Transcribed
from talaria.cli.terminal import Terminal
from talaria.contracts.store import Store
from talaria.core.errors import TalariaError
from talaria.core.events import ApprovalAsked, TurnBegan
from talaria.core.ids import SessionId
from talaria.sessions.company import first_error
from talaria.sessions.live_events import QuestionClosed, Seen


def print_events(arguments: argparse.Namespace, services: Services) -> int:
    """Print every event as a line of JSON until interrupted."""
    try:
        asyncio.run(_print_events(arguments, services))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    return 0


def watch_plainly(arguments: argparse.Namespace, services: Services) -> SessionId | str:
    """Show a conversation as lines of text until the person leaves; return which one was taken over, if any.

    Where nobody sits at a keyboard, nothing is read, and a signal ends it.
    """
    try:
        return asyncio.run(_watch(arguments, services))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors


async def _print_events(arguments: argparse.Namespace, services: Services) -> None:
    terminal = services.terminal

    def put(value: object) -> None:
        terminal.document(f"{msgspec.json.encode(value).decode()}\n", at_once=True)

    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        store = services.load_house()(stack).store
        session = await store.read(lambda tx: find_session(tx, arguments.session))
        where = await store.read(lambda tx: whereabouts(tx, session))
        opened = {"type": "attached", "session": session.id, "title": session.title, "place": where.place}
        put({**opened, "running": where.turn_id is not None})
        attached = Attached(store, session, put, terminal.note, None, jobs)
        _leave_on_signals(attached)
        await attached.follow()


async def _watch(arguments: argparse.Namespace, services: Services) -> SessionId | str:
    terminal = services.terminal
    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        store: Store = services.load_house()(stack).store
        session = await store.read(lambda tx: find_session(tx, arguments.session))
        where, said = await store.read(lambda tx: (whereabouts(tx, session), what_was_said(tx, session)))
        terminal.note(heading(session, where))
        if said:
            terminal.line(said)
        lines = _Lines(terminal)
        attached = Attached(store, session, lines.see, terminal.note, lines, jobs)
        _leave_on_signals(attached)
        reading = jobs.create_task(_read(attached, lines)) if sys.stdin.isatty() else None
        await attached.follow()
        if reading is not None:
            reading.cancel()
    return session.id if attached.taken else ""


def _leave_on_signals(attached: Attached) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, attached.over.set)


async def _read(attached: Attached, lines: "_Lines") -> None:
    """Act on what is typed until the input ends."""
    while not attached.over.is_set():
        line = await lines.keyboard.line("")
        if line is None:
            attached.over.set()
        elif line and not lines.answer(line):
            try:
                await attached.act(line)
            except TalariaError as error:
                lines.tell(str(error))


class _Lines:
    """Shows events as text, and implements `TerminalAsks`: what is typed while a question is open is its answer."""

    def __init__(self, terminal: Terminal) -> None:
        self.keyboard = LineReader(terminal)
        self._terminal = terminal
        self._shown = Transcribed(terminal)
        self._open: list[asyncio.Future[str]] = []
        self._approval: asyncio.Future[str] | None = None
        self._approving = asyncio.Lock()

    def see(self, event: Seen) -> None:
        if isinstance(event, QuestionClosed):
            return
        if isinstance(event, TurnBegan) and event.said:
            author = event.route.user_name if event.route else ""
            self._terminal.note(self._terminal.styled(f"> {f'{author}: ' if author else ''}{event.said}", "bold"))
        self._shown.event(event)

    def tell(self, text: str) -> None:
        self._terminal.note(text)

    def answer(self, line: str) -> bool:
        """Take a line as the answer to an open question; ``False`` where none is open, or it is no answer to it."""
        if self._approval is not None and not self._approval.done():
            decision = decision_of(line)
            if decision is not None:
                self._approval.set_result(decision)
            return decision is not None
        waiting = [one for one in self._open if not one.done()]
        if not waiting or line.startswith("/"):
            return False
        waiting[0].set_result(line)
        return True

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        listed = "\n".join(f"{number}. {choice}" for number, choice in enumerate(choices, 1))
        typed = await self._typed(f"{self._terminal.styled(question, 'bold')}\n{listed}\n1 to {len(choices)}:")
        return int(typed) - 1 if typed.isdecimal() and 0 < int(typed) <= len(choices) else None

    async def approve(self, asked: ApprovalAsked) -> str:
        async with self._approving:
            self.keyboard.show_approval(asked)
            self._terminal.note(APPROVAL)
            self._approval = asyncio.get_running_loop().create_future()
            try:
                decision = await self._approval
            finally:
                self._approval = None
            self.keyboard.show_decision(decision)
            return decision

    async def wait_for_attention(self) -> None:
        return

    async def ask(self, question: str) -> str:
        return await self._typed(self._terminal.styled(question, "bold"))

    async def _typed(self, question: str) -> str:
        self._terminal.note(question)
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._open.append(answer)
        try:
            return await answer
        finally:
            self._open.remove(answer)

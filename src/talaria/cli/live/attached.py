"""`talaria attach` on a terminal: what happens elsewhere is drawn as it is where it happens."""

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from talaria.cli.attached import Attached, heading, what_was_said, whereabouts
from talaria.cli.cells import cell
from talaria.cli.live.activity import Activity
from talaria.cli.live.completing import Named
from talaria.cli.live.front import Front
from talaria.cli.live.line import Typed
from talaria.cli.live.opening import run_behind
from talaria.cli.live.place import TerminalPlace
from talaria.cli.rendering.themes import THEMES
from talaria.cli.services import Services
from talaria.cli.session_actions.names import find_session
from talaria.cli.sitting import read_display
from talaria.commands.command import Display
from talaria.commands.house import House
from talaria.contracts.stores.sessions import Session
from talaria.core.errors import TalariaError
from talaria.core.events import TurnBegan
from talaria.core.ids import SessionId, TurnId
from talaria.sessions.live_events import QuestionClosed, Seen

_FRAME = 0.05
_HINT = "Write to this conversation, or /stop, /steer, /take, /detach"
_COMMANDS: Sequence[Named] = (
    ("stop", "/stop", "Stop the running turn; what was done so far is kept."),
    ("steer", "/steer <text>", "Say something to the running turn, without stopping it."),
    ("take", "/take", "Let this conversation go on here, with the turn that is running."),
    ("detach", "/detach", "Leave; everything goes on as it does."),
)


def watch_live(arguments: argparse.Namespace, services: Services) -> SessionId | str:
    """Show a conversation until the person leaves; return which one was taken over, if any."""
    taken: list[SessionId] = []

    async def serve(front: Front) -> None:
        open_house = await asyncio.to_thread(services.load_house)
        async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
            house = open_house(stack)
            session = await house.store.read(lambda tx: find_session(tx, arguments.session))
            view = AttachedView(front, house, session, jobs, await read_display(house))
            await view.serve()
            if view.attached.taken:
                taken.append(session.id)
        front.leave()

    run_behind(services, serve)
    return taken[0] if taken else ""


class AttachedView:
    """One person who watches; implements `Behind`."""

    def __init__(self, front: Front, house: House, session: Session, jobs: asyncio.TaskGroup, display: Display) -> None:
        self._front = front
        self._store = house.store
        self._jobs = jobs
        self._activity = Activity(front.canvas, THEMES[front.theme], lambda: display, lambda: front.asking)
        pictures = house.identity.folder / "pictures"
        self._place = TerminalPlace(front, self._activity, display, pictures, lambda _: None)
        self.attached = Attached(house.store, session, self._see, self._place.show, self._place, jobs)
        self._stirred = asyncio.Event()
        self._turn_id: TurnId | None = None

    async def serve(self) -> None:
        """Show what happens until the person leaves."""
        session = self.attached.session
        where, said = await self._store.read(lambda tx: (whereabouts(tx, session), what_was_said(tx, session)))
        for text in filter(None, (heading(session, where), said)):
            self._place.show(text)
        self._front.status = [("class:status", f"  attached · {cell(session.title or session.id)} · Ctrl-D leaves")]
        self._front.attach_behind(self, _HINT)
        drawing = self._jobs.create_task(self._draw())
        try:
            await self.attached.follow()
        finally:
            drawing.cancel()
            self._activity.break_off()
            self._activity.tick()

    def submit(self, typed: Typed) -> None:
        """Take a line that was sent."""
        self._jobs.create_task(self._act(typed.text))

    def interrupt(self) -> None:
        """Stop the turn; where none is running, clear the line or leave."""
        if self.attached.busy:
            self._jobs.create_task(self._act("/stop"))
        elif self._front.line.buffer.text:
            self._front.line.clear()
        else:
            self.attached.over.set()

    def escape(self) -> None:
        """Do nothing: the turn runs elsewhere, and others may wait for it; `/stop` and Ctrl-C stop it."""

    def unfold(self) -> None:
        """Show the output of the last tool call."""
        self._activity.add(self._activity.unfold())
        self._stirred.set()

    def paste(self) -> None:
        """Do nothing: pictures are for the place of the conversation."""

    def edit(self) -> None:
        """Do nothing: what is said from here is short."""

    def commands(self) -> Sequence[Named]:
        """Return what can be typed."""
        return _COMMANDS

    async def offers(self, name: str, words: str) -> Sequence[tuple[str, str]]:
        """Return nothing: no command takes anything that could be offered."""
        return ()

    async def _act(self, text: str) -> None:
        try:
            await self.attached.act(text)
        except TalariaError as error:
            self._place.show(str(error))
        self._stirred.set()

    def _see(self, event: Seen) -> None:
        if isinstance(event, QuestionClosed):
            return
        if isinstance(event, TurnBegan):
            self._began(event)
        self._activity.event(event)
        self._stirred.set()

    def _began(self, began: TurnBegan) -> None:
        if began.turn_id == self._turn_id:
            self._activity.break_off()
            self._activity.add_dim("Another process goes on with it.")
        elif began.said:
            author = began.route.user_name if began.route else ""
            self._activity.add_said(began.said, author)
        self._turn_id = began.turn_id

    async def _draw(self) -> None:
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            while self.attached.busy:
                self._activity.begin()
                self._activity.tick()
                await asyncio.sleep(_FRAME)
            self._activity.end()
            self._activity.tick()

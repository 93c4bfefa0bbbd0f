"""Interactive `talaria attach`: live view of a session that runs in another process."""

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from talaria.cli.chat.attach import AttachedSession, format_attach_heading, render_previous_exchange
from talaria.cli.chat.controller import read_display
from talaria.cli.chat.tui.activity import Activity
from talaria.cli.chat.tui.input_line import CommandEntry, TypedInput
from talaria.cli.chat.tui.prompt import PromptScreen
from talaria.cli.chat.tui.start import run_with_prompt
from talaria.cli.chat.tui.surface import TuiScreen
from talaria.cli.markdown.styled_text import THEMES
from talaria.cli.services import Services
from talaria.cli.session_lookup import find_session
from talaria.cli.terminal_text import format_cell
from talaria.commands.application import Application
from talaria.commands.command import Display
from talaria.contracts.stores.sessions import Session
from talaria.core.errors import TalariaError
from talaria.core.events import TurnBegan
from talaria.core.ids import SessionId, TurnId
from talaria.runtime.live.feed import FeedEvent, QuestionClosed
from talaria.runtime.live.remote import locate_session

_FRAME_SECONDS = 0.05
_HINT = "Write to this conversation, or /stop, /steer, /take, /detach"
_COMMANDS: Sequence[CommandEntry] = (
    ("stop", "/stop", "Stop the running turn; finished steps are kept."),
    ("steer", "/steer <text>", "Add a message to the running turn without stopping it."),
    ("take", "/take", "Take over this conversation, including the running turn."),
    ("detach", "/detach", "Leave; nothing else changes."),
)


def watch_live(arguments: argparse.Namespace, services: Services) -> SessionId | str:
    """Show a session until the user leaves; return it if they took it over."""
    taken: list[SessionId] = []

    async def serve(prompt: PromptScreen) -> None:
        open_application = await asyncio.to_thread(services.load_application)
        async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
            application = open_application(stack)
            session = await application.store.read(lambda tx: find_session(tx, arguments.session))
            view = AttachedView(prompt, application, session, jobs, await read_display(application))
            await view.serve()
            if view.attached.taken:
                taken.append(session.id)
        prompt.leave()

    run_with_prompt(services, serve)
    return taken[0] if taken else ""


class AttachedView:
    """Live view of an attached session; implements `PromptHandler`."""

    def __init__(
        self,
        prompt: PromptScreen,
        application: Application,
        session: Session,
        jobs: asyncio.TaskGroup,
        display: Display,
    ) -> None:
        self._prompt = prompt
        self._store = application.store
        self._jobs = jobs
        self._activity = Activity(prompt.canvas, THEMES[prompt.theme], lambda: display, lambda: prompt.is_asking)
        pictures = application.identity.folder / "pictures"
        self._screen = TuiScreen(prompt, self._activity, display, pictures, lambda _: None)
        self.attached = AttachedSession(
            application.store, session, self._on_event, self._screen.show, self._screen, jobs
        )
        self._redraw_needed = asyncio.Event()
        self._turn_id: TurnId | None = None

    async def serve(self) -> None:
        """Show events until the user leaves."""
        session = self.attached.session
        location, recent = await self._store.read(
            lambda tx: (locate_session(tx, session), render_previous_exchange(tx, session))
        )
        for text in filter(None, (format_attach_heading(session, location), recent)):
            self._screen.show(text)
        self._prompt.status = [
            ("class:status", f"  attached · {format_cell(session.title or session.id)} · Ctrl-D leaves")
        ]
        self._prompt.attach_handler(self, _HINT)
        draw_task = self._jobs.create_task(self._draw())
        try:
            await self.attached.follow()
        finally:
            draw_task.cancel()
            self._activity.abort()
            self._activity.redraw_changes()

    def submit(self, typed: TypedInput) -> None:
        """Handle a submitted line."""
        self._jobs.create_task(self._handle_line(typed.text))

    def interrupt(self) -> None:
        """Stop the turn; if none is running, clear the line or leave."""
        if self.attached.busy:
            self._jobs.create_task(self._handle_line("/stop"))
        elif self._prompt.line.buffer.text:
            self._prompt.line.clear()
        else:
            self.attached.finished.set()

    def escape(self) -> None:
        """Do nothing: others may wait for the turn; `/stop` and Ctrl-C stop it."""

    def unfold(self) -> None:
        """Show the output of the last tool call."""
        self._activity.add(self._activity.unfold())
        self._redraw_needed.set()

    def paste(self) -> None:
        """Do nothing: images cannot be sent from here."""

    def edit(self) -> None:
        """Do nothing: no editor here."""

    def commands(self) -> Sequence[CommandEntry]:
        """Return the available commands."""
        return _COMMANDS

    async def list_completions(self, name: str, arguments: str) -> Sequence[tuple[str, str]]:
        """Return nothing: no command has completions."""
        return ()

    async def _handle_line(self, text: str) -> None:
        try:
            await self.attached.act(text)
        except TalariaError as error:
            self._screen.show(str(error))
        self._redraw_needed.set()

    def _on_event(self, event: FeedEvent) -> None:
        if isinstance(event, QuestionClosed):
            return
        if isinstance(event, TurnBegan):
            self._on_turn_began(event)
        self._activity.show_event(event)
        self._redraw_needed.set()

    def _on_turn_began(self, began: TurnBegan) -> None:
        if began.turn_id == self._turn_id:
            self._activity.abort()
            self._activity.add_dim("Another process has taken over.")
        elif began.text:
            author = began.route.user_name if began.route else ""
            self._activity.add_author_message(began.text, author)
        self._turn_id = began.turn_id

    async def _draw(self) -> None:
        while True:
            await self._redraw_needed.wait()
            self._redraw_needed.clear()
            while self.attached.busy:
                self._activity.begin()
                self._activity.redraw_changes()
                await asyncio.sleep(_FRAME_SECONDS)
            self._activity.end()
            self._activity.redraw_changes()

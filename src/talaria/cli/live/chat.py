"""The chat behind the prompt: what is sent is acted on, what happens is drawn, the status bar is kept true."""

import argparse
import asyncio
import gc
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack, suppress

import msgspec

from talaria.cli.discoveries import discoveries
from talaria.cli.live.activity import Activity
from talaria.cli.live.completing import Named
from talaria.cli.live.editor import edit_text
from talaria.cli.live.front import Front
from talaria.cli.live.line import Typed
from talaria.cli.live.place import TerminalPlace
from talaria.cli.live.status import Situation, has_price, read_situation, status_line
from talaria.cli.mentions import from_home, picture
from talaria.cli.rendering.code import prepare
from talaria.cli.rendering.themes import THEMES
from talaria.cli.replay import has_messages, last_exchanges, resume_hint
from talaria.cli.services import Services
from talaria.cli.sitting import Sitting, is_first_time, keep_display, read_display
from talaria.cli.wishes import wish_of
from talaria.commands.command import Display
from talaria.commands.house import House
from talaria.commands.markdown import plain
from talaria.commands.using import is_command
from talaria.core.errors import TalariaError
from talaria.core.events import ApprovalAsked, ModelCalled, QuestionAsked, TurnAnswered, TurnEnd, TurnEvent
from talaria.core.ids import SessionId
from talaria.sessions.chat import Chat

_SURFACE = "You are in a terminal that shows Markdown: headings, lists, tables and highlighted code."
_USUAL_LANGUAGES = ("python", "bash")
_OBJECTS_BETWEEN_COLLECTIONS = 5_000
_FRAME = 0.05
_LOOK_AGAIN = 5.0


async def serve(front: Front, arguments: argparse.Namespace, services: Services) -> None:
    """Open the conversation and serve the person until cancelled."""
    open_house = await asyncio.to_thread(services.load_house)
    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        house = open_house(stack)
        chat = LiveChat(front, house, services, jobs, await read_display(house))
        stack.push_async_callback(chat.close)
        await chat.open(arguments)
        _collect_garbage_in_small_portions()
        jobs.create_task(asyncio.to_thread(prepare, THEMES[front.theme], *_USUAL_LANGUAGES))
        await chat.work()


def _collect_garbage_in_small_portions() -> None:
    """Look for garbage often, and not in what was loaded at the start: a key would wait 30 ms behind it."""
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)


class LiveChat:
    """One person at one terminal; implements `Behind`."""

    def __init__(
        self, front: Front, house: House, services: Services, jobs: asyncio.TaskGroup, display: Display
    ) -> None:
        self._front = front
        self._house = house
        self._services = services
        self._jobs = jobs
        self._activity = Activity(front.canvas, THEMES[front.theme], lambda: self._place.display, lambda: front.asking)
        pictures = house.identity.folder / "pictures"
        self._place = TerminalPlace(front, self._activity, display, pictures, self._keep_display)
        self._sitting = Sitting(house, jobs, self._place, self._event, lambda: services.settings().cli.busy)
        self._sent: asyncio.Queue[Typed] = asyncio.Queue()
        self._stirred = asyncio.Event()
        self._situation = Situation()
        self._held: list[TurnEvent] | None = []

    async def open(self, arguments: argparse.Namespace) -> None:
        """Open the conversation that the command line asks for, and show where the person is."""
        for file in arguments.image:
            self._front.line.attach(picture(file))
        chat, notes = await self._sitting.open(wish_of(arguments, _SURFACE))
        for note in (*await self._greeting(chat), *notes):
            self._place.show(note)
        await self._replay()
        self._front.attach_behind(self)
        held, self._held = self._held or [], None
        for event in held:
            self._event(event)
        self._stirred.set()

    async def work(self) -> None:
        """Act on what is sent, draw, and keep the status bar true, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._draw())
            group.create_task(self._watch())
            while True:
                await self._act(await self._sent.get())

    async def close(self) -> None:
        """Leave the conversation, and say how to resume it if anything was said."""
        seat = self._sitting.seat
        if seat.is_open and not self._place.hushed:
            self._activity.break_off()
            with suppress(TalariaError):  # the hint is not worth an error
                await self._show_resume_hint(seat.session_id)
            self._activity.tick()
        await seat.close()

    def submit(self, typed: Typed) -> None:
        """Take a line that was sent."""
        if typed.text == "?":
            typed = Typed("/keys", "/keys", typed.pictures)
        if self._sitting.is_urgent(typed.text):
            self._sitting.seat.start_beside(self._act(typed))  # cancelled before the store closes
        else:
            self._sent.put_nowait(typed)

    def interrupt(self) -> None:
        """Stop the turn, or clear the line, or offer to leave; leave where that was offered or all is over here."""
        if self._place.hushed or self._front.leave_confirmed:
            self._front.leave()
        elif self._sitting.stop():
            return
        elif self._front.line.buffer.text:
            self._front.line.clear()
        else:
            self._front.offer_leave()

    def escape(self) -> None:
        """Stop the running turn."""
        self._sitting.stop()

    def unfold(self) -> None:
        """Show the output of the last tool call, and how running ones get on; the next time, no more."""
        shown = self._activity.unfold()
        if shown:
            self._activity.add(shown)
        verbose = self._place.display.progress == "verbose"
        self._place.display = msgspec.structs.replace(self._place.display, progress="all" if verbose else "verbose")
        self._stirred.set()

    def paste(self) -> None:
        """Take what the clipboard holds."""
        self.submit(Typed("/paste", "/paste"))

    def edit(self) -> None:
        """Open what was typed in the person's editor."""
        self._jobs.create_task(self._edit())

    def commands(self) -> Sequence[Named]:
        """Return name, usage and help of each command."""
        return [(command.name, command.usage, command.help) for command in self._sitting.commands]

    async def offers(self, name: str, words: str) -> Sequence[tuple[str, str]]:
        """Return what may follow a command."""
        return await self._sitting.offers(name, words)

    async def _greeting(self, chat: Chat) -> list[str]:
        identity = self._house.identity
        folder = from_home(chat.workspace.folder, self._services.environment)
        lines = [f"**Talaria** {identity.version.removeprefix('talaria ')} · {chat.model} · {folder}"]
        if await is_first_time(self._house):
            lines += ["\n".join(f"- {line}" for line in await asyncio.to_thread(discoveries, self._services))]
        return lines

    async def _replay(self) -> None:
        """Show the last exchanges of a conversation that is resumed."""
        chat, session_id = self._sitting.seat.chat, self._sitting.seat.session_id
        replayed = await self._sitting.seat.store.read(lambda tx: last_exchanges(tx, session_id))
        if not replayed:
            return
        title = f" *{plain(chat.title)}*" if chat.title else ""
        self._activity.add_dim(f"Resuming{title}. `/history` shows more.")
        for exchange in replayed:
            self._activity.add_said(exchange.said, exchange.author)
            if exchange.reply:
                self._activity.space()
                self._place.show(exchange.reply)
        self._activity.space()

    async def _show_resume_hint(self, session_id: SessionId) -> None:
        if await self._house.store.read(lambda tx: has_messages(tx, session_id)):
            self._activity.add_dim(resume_hint(session_id))

    async def _edit(self) -> None:
        async def use() -> None:
            environment = self._sitting.seat.chat.workspace.environment
            self._front.line.fill_in(await edit_text(self._front.line.text, environment))

        try:
            await self._place.lend(use)
        except TalariaError as error:
            self._place.show(str(error))

    def _notify(self, text: str) -> None:
        """Report to a person who may look elsewhere."""
        cli = self._services.settings().cli
        if self._front.idle_seconds < cli.notify_seconds:
            return
        match cli.notify:
            case "bell":
                self._front.canvas.ring()
            case "desktop":
                self._front.canvas.notify(text)

    def _event(self, event: TurnEvent) -> None:
        if self._held is not None:  # not before what was said earlier is shown
            self._held.append(event)
            return
        self._activity.event(event)
        if isinstance(event, ModelCalled):
            self._situation = msgspec.structs.replace(
                self._situation, context=event.context, exact=True, context_limit=event.context_limit
            )
        if isinstance(event, TurnAnswered) and self._place.display.footer:
            self._activity.add_dim(self._footer())
        if isinstance(event, ApprovalAsked | QuestionAsked):
            self._notify("Talaria has a question")
        elif isinstance(event, TurnEnd):
            self._notify("Talaria is done")
        self._stirred.set()

    async def _act(self, typed: Typed) -> None:
        text = typed.text
        waits = self._sitting.seat.busy and not is_command(text) and not text.startswith("!")
        if text != "/paste":
            pictures = [image.source for image in typed.pictures]
            self._activity.add_own(typed.shown, pictures, pending=text if waits else None)
        await self._sitting.act(text, typed.pictures)
        if self._place.leaving:
            self._front.leave()
        self._stirred.set()

    async def _draw(self) -> None:
        seat = self._sitting.seat
        while True:
            await self._stirred.wait()
            self._stirred.clear()
            while seat.busy and not self._place.hushed:
                self._activity.begin()
                self._activity.tick()
                self._draw_status()
                await asyncio.sleep(_FRAME)
            self._activity.end()
            self._activity.tick()
            await self._look()

    async def _watch(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(_LOOK_AGAIN)

    async def _look(self) -> None:
        """Ask the store for what the status bar tells."""
        seat = self._sitting.seat
        if not seat.is_open:
            return
        chat, session_id = seat.chat, seat.session_id
        before = self._situation
        known = await seat.store.read(lambda tx: read_situation(tx, session_id, before))
        self._situation = msgspec.structs.replace(
            known, model=chat.model, context_limit=chat.info.context_limit, priced=has_price(chat.info, chat.provider)
        )
        self._front.folder = chat.workspace.folder
        self._draw_status()

    def _draw_status(self) -> None:
        self._front.status = status_line(self._situation, self._front.canvas.width)
        self._front.canvas.app.invalidate()

    def _footer(self) -> str:
        situation = self._situation
        folder = from_home(self._sitting.seat.chat.workspace.folder, self._services.environment)
        percent = f"{situation.context_percent} % of the context"
        return plain(f"{situation.model} · {percent} · {situation.cost} · {folder}")

    def _keep_display(self, display: Display) -> None:
        self._jobs.create_task(self._kept(keep_display(self._house, display)))

    async def _kept(self, keeping: Awaitable[None]) -> None:
        await keeping

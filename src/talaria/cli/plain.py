"""The chat as plain lines of text: nothing is redrawn, so that any terminal and any screen reader can follow."""

import argparse
import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

from talaria.cli.clipboard import read_clipboard
from talaria.cli.discoveries import discoveries
from talaria.cli.line_reader import LineReader
from talaria.cli.live.keys import PLAIN_KEYS
from talaria.cli.mentions import picture
from talaria.cli.replay import has_messages, last_exchanges, resume_hint
from talaria.cli.services import Services
from talaria.cli.showing import Transcribed
from talaria.cli.sitting import Sitting, is_first_time, keep_display, read_display
from talaria.cli.terminal import Terminal
from talaria.cli.wishes import SOURCE, wish_of
from talaria.commands.command import Display
from talaria.commands.house import House
from talaria.core.addresses import Address
from talaria.core.errors import Refused, TalariaError
from talaria.core.events import ApprovalAsked
from talaria.core.messages import Image
from talaria.sessions.company import first_error

_SURFACE = "You are in a plain terminal: answer in text that reads well without rendering."


def open_plain(arguments: argparse.Namespace, services: Services) -> int:
    """Run the chat until the input ends, and return the exit code."""
    try:
        asyncio.run(_run(arguments, services))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    return 0


async def _run(arguments: argparse.Namespace, services: Services) -> None:
    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        house = services.load_house()(stack)
        face = PlainFace(services, house, jobs, await read_display(house))
        shown = Transcribed(services.terminal)
        sitting = Sitting(house, jobs, face, shown.event, lambda: services.settings().cli.busy)
        stack.push_async_callback(sitting.seat.close)
        _, notes = await sitting.open(wish_of(arguments, _SURFACE))
        if await is_first_time(house):
            notes += await asyncio.to_thread(discoveries, services)
        for note in notes:
            services.terminal.note(note)
        await _replay(sitting, services.terminal)
        face.pictures += map(picture, arguments.image)
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: _stop(sitting))
        while not face.leaving:
            line = await face.keyboard.line("> ")
            if line is None:
                services.terminal.note("")
                break
            if line or face.pictures:
                pictures, face.pictures = face.pictures, []
                await sitting.act(line, pictures)
                await _settled(sitting)
        session_id = sitting.seat.session_id
        if not face.hushed and await house.store.read(lambda tx: has_messages(tx, session_id)):
            services.terminal.note(resume_hint(session_id))


async def _replay(sitting: Sitting, terminal: Terminal) -> None:
    """Print the last exchanges of a conversation that is resumed."""
    session_id = sitting.seat.session_id
    for exchange in await sitting.seat.store.read(lambda tx: last_exchanges(tx, session_id)):
        terminal.note(terminal.styled(f"> {exchange.said}", "bold"))
        if exchange.reply:
            terminal.line(exchange.reply)


async def _settled(sitting: Sitting) -> None:
    """Wait for the end of the turn; what kept it from being taken was told already."""
    try:
        await sitting.seat.chat.conversation.settled()
    except TalariaError:
        return


def _stop(sitting: Sitting) -> None:
    if not sitting.stop():
        raise KeyboardInterrupt


class PlainFace:
    """Implements `Face` by lines of text."""

    name = SOURCE
    address: Address | None = None
    theme = "mono"
    keys = PLAIN_KEYS

    def __init__(self, services: Services, house: House, jobs: asyncio.TaskGroup, display: Display) -> None:
        self.display = display
        self.keyboard = LineReader(services.terminal)
        self.pictures: list[Image] = []
        self.leaving = self.hushed = False
        self._terminal = services.terminal
        self._house = house
        self._jobs = jobs

    def change_display(self, display: Display) -> None:
        """Show this much from now on, also after the next start."""
        self.display = display
        self._jobs.create_task(keep_display(self._house, display))

    def show(self, text: str) -> None:
        """Print the text as it is: Markdown reads well enough."""
        self._terminal.line(text)

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        """Let the person choose by a number."""
        return await self.keyboard.choose(question, choices)

    async def ask(self, question: str) -> str:
        """Return what the person types as the answer."""
        return await self.keyboard.ask(question)

    async def approve(self, asked: ApprovalAsked) -> str:
        """Show exactly what would happen, and return the decision of the person."""
        return await self.keyboard.approve(asked)

    async def wait_for_attention(self) -> None:
        """Return at once: what was typed before is not known here."""

    async def lend(self, use: Callable[[], Awaitable[None]]) -> None:
        """Let another program use the terminal."""
        await use()

    def change_theme(self, name: str) -> None:
        """Refuse: nothing is coloured here."""
        raise Refused(f"The plain chat has no colours, so there is no theme `{name}` in it.")

    def attach(self, picture: Image) -> None:
        """Show this picture to the model with the next message."""
        self.pictures.append(picture)

    def fill_in(self, text: str) -> None:
        """Print the text: there is no line to put it into."""
        self._terminal.note(text)

    def copy(self, text: str) -> None:
        """Print the text, to be copied by hand."""
        self._terminal.document(f"{text}\n")

    async def paste(self) -> str | Image | None:
        """Return what the clipboard holds."""
        return await read_clipboard(self._house.identity.folder / "pictures")

    def hush(self) -> None:
        """Show nothing more of the running turn, and ask nothing for it: it is seen elsewhere."""
        self.hushed = True

    def leave(self) -> None:
        """End the program as soon as this command is done."""
        self.leaving = True

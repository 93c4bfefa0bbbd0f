"""Plain chat in lines of text, without redrawing, for any terminal and screen reader."""

import argparse
import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

from talaria.cli.chat.clipboard import read_clipboard
from talaria.cli.chat.controller import (
    ChatController,
    claim_first_run,
    format_resume_hint,
    is_resumable,
    read_display,
    read_last_exchanges,
    save_display,
)
from talaria.cli.chat.event_printer import TextPrinter
from talaria.cli.chat.line_reader import LineReader
from talaria.cli.chat.options import SOURCE, build_open_request
from talaria.cli.first_run import describe_first_run
from talaria.cli.services import Services
from talaria.cli.terminal import Terminal
from talaria.commands.application import Application
from talaria.commands.command import Display
from talaria.core.addresses import Address
from talaria.core.aio import first_error
from talaria.core.errors import Refused, TalariaError
from talaria.core.events import ApprovalAsked
from talaria.core.mentions import open_image
from talaria.core.messages import Image

_KEYS = """\
Keys: Enter sends, Ctrl-C stops the running turn, Ctrl-D leaves.
Type / for commands (/help lists them), @ before a file, ! before a shell command.
"""

_SURFACE = "You are in a plain terminal: answer in text that reads well without rendering."


def open_plain_chat(arguments: argparse.Namespace, services: Services) -> int:
    """Run the chat until the input ends and return the exit code."""
    try:
        asyncio.run(_run(arguments, services))
    except BaseExceptionGroup as errors:
        raise first_error(errors) from errors
    return 0


async def _run(arguments: argparse.Namespace, services: Services) -> None:
    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        application = services.load_application()(stack)
        screen = PlainScreen(services, application, jobs, await read_display(application))
        printer = TextPrinter(services.terminal)
        controller = ChatController(
            application, jobs, screen, printer.print_event, lambda: services.settings().cli.busy
        )
        stack.push_async_callback(controller.active_session.close)
        _, notes = await controller.open(build_open_request(arguments, _SURFACE))
        if await claim_first_run(application):
            notes += await asyncio.to_thread(describe_first_run, services)
        for note in notes:
            services.terminal.note(note)
        await _replay(controller, services.terminal)
        screen.pictures += map(open_image, arguments.image)
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, lambda: _stop(controller))
        await controller.ask_for_trust(screen.keyboard.confirm)
        while not screen.is_leaving:
            line = await screen.keyboard.read_line("> ")
            if line is None:
                services.terminal.note("")
                break
            if line or screen.pictures:
                pictures, screen.pictures = screen.pictures, []
                await controller.act(line, pictures)
                await _wait_until_idle(controller)
        session_id = controller.active_session.session_id
        if not screen.is_muted and await application.store.read(lambda tx: is_resumable(tx, session_id)):
            services.terminal.note(format_resume_hint(session_id))


async def _replay(controller: ChatController, terminal: Terminal) -> None:
    """Print the last exchanges of a resumed session."""
    session_id = controller.active_session.session_id
    for exchange in await controller.active_session.store.read(lambda tx: read_last_exchanges(tx, session_id)):
        terminal.note(terminal.style(f"> {exchange.text}", "bold"))
        if exchange.reply:
            terminal.line(exchange.reply)


async def _wait_until_idle(controller: ChatController) -> None:
    """Wait for the end of the turn; its errors have already been shown."""
    try:
        await controller.active_session.chat.conversation.wait_until_idle()
    except TalariaError:
        return


def _stop(controller: ChatController) -> None:
    if not controller.stop():
        raise KeyboardInterrupt


class PlainScreen:
    """`ChatScreen` that prints lines of text."""

    name = SOURCE
    address: Address | None = None
    home_address: Address | None = None
    theme = "mono"
    keys = _KEYS

    def __init__(self, services: Services, application: Application, jobs: asyncio.TaskGroup, display: Display) -> None:
        self.display = display
        self.keyboard = LineReader(services.terminal)
        self.pictures: list[Image] = []
        self.is_leaving = self.is_muted = False
        self._terminal = services.terminal
        self._application = application
        self._jobs = jobs

    def change_display(self, display: Display) -> None:
        """Change and save the display options."""
        self.display = display
        self._jobs.create_task(save_display(self._application, display))

    def show(self, text: str) -> None:
        """Print the text as it is, without rendering Markdown."""
        self._terminal.line(text)

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        """Ask the user to choose by number."""
        return await self.keyboard.choose(question, choices)

    async def ask(self, question: str) -> str:
        """Return the answer that the user types."""
        return await self.keyboard.ask(question)

    async def approve(self, asked: ApprovalAsked) -> str:
        """Show the exact action and return the user's decision."""
        return await self.keyboard.approve(asked)

    async def wait_for_attention(self) -> None:
        """Return at once: typing cannot be detected here."""

    async def run_in_foreground(self, action: Callable[[], Awaitable[None]]) -> None:
        """Run a program that uses the terminal."""
        await action()

    def change_theme(self, name: str) -> None:
        """Refuse: plain output has no colours."""
        raise Refused(f"The plain chat has no colours, so the theme `{name}` isn't available.")

    def attach(self, picture: Image) -> None:
        """Send this image with the next message."""
        self.pictures.append(picture)

    def set_input_text(self, text: str) -> None:
        """Print the text: there is no editable input line."""
        self._terminal.note(text)

    def copy(self, text: str) -> None:
        """Print the text, for copying by hand."""
        self._terminal.document(f"{text}\n")

    async def paste(self) -> str | Image | None:
        """Return the content of the clipboard."""
        return await read_clipboard(self._application.identity.folder / "pictures")

    def mute(self) -> None:
        """Stop showing the running turn and asking its questions here; another surface does so."""
        self.is_muted = True

    def leave(self) -> None:
        """Exit the program when this command is done."""
        self.is_leaving = True

"""Interactive chat: handles input, draws events and updates the status bar."""

import argparse
import asyncio
import gc
import shlex
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from talaria.cli.chat.approval import confirmation_of
from talaria.cli.chat.controller import (
    ChatController,
    claim_first_run,
    format_resume_hint,
    is_resumable,
    read_display,
    read_last_exchanges,
    save_display,
)
from talaria.cli.chat.options import build_open_request
from talaria.cli.chat.tui.activity import Activity
from talaria.cli.chat.tui.input_line import CommandEntry, TypedInput
from talaria.cli.chat.tui.prompt import PromptScreen
from talaria.cli.chat.tui.questions import TRUST
from talaria.cli.chat.tui.status_bar import StatusInfo, abbreviate_home, read_status, render_status_line
from talaria.cli.chat.tui.surface import TuiScreen
from talaria.cli.first_run import describe_first_run
from talaria.cli.markdown.code import preload_highlighting
from talaria.cli.markdown.styled_text import THEMES
from talaria.cli.services import Services
from talaria.commands.application import Application
from talaria.commands.arguments import escape_markdown
from talaria.commands.command import Display, is_command
from talaria.core.errors import Refused, TalariaError
from talaria.core.events import ApprovalAsked, ModelCalled, QuestionAsked, TurnAnswered, TurnEnd, TurnEvent
from talaria.core.ids import SessionId
from talaria.core.mentions import open_image
from talaria.runtime.open_session import OpenSession

_DEFAULT_EDITOR = "vi"


def find_editor(environment: Mapping[str, str]) -> str:
    """Return the command that starts the user's editor."""
    return environment.get("VISUAL") or environment.get("EDITOR") or _DEFAULT_EDITOR


async def edit_text(text: str, environment: Mapping[str, str]) -> str:
    """Return the text after editing it in the user's editor, which uses the terminal.

    Raises `Refused` if the editor cannot be started or fails.
    """
    editor = find_editor(environment)
    with TemporaryDirectory(prefix="talaria-") as folder:
        file = Path(folder) / "message.md"
        file.write_text(text)
        try:
            process = await asyncio.create_subprocess_exec(*shlex.split(editor), str(file), env=environment)
        except (OSError, ValueError) as error:
            raise Refused(f"Can't start the editor `{editor}`: {error}. Set VISUAL or EDITOR.") from error
        if await process.wait():
            raise Refused(f"The editor `{editor}` exited with code {process.returncode}. Nothing was changed.")
        return file.read_text().rstrip("\n")


_SURFACE = "You are in a terminal that shows Markdown: headings, lists, tables and highlighted code."
_PRELOADED_LANGUAGES = ("python", "bash")
_OBJECTS_BETWEEN_COLLECTIONS = 5_000
_FRAME_SECONDS = 0.05
_POLL_SECONDS = 5.0


async def serve(prompt: PromptScreen, arguments: argparse.Namespace, services: Services) -> None:
    """Open the session and serve the user until cancelled."""
    open_application = await asyncio.to_thread(services.load_application)
    async with asyncio.TaskGroup() as jobs, AsyncExitStack() as stack:
        application = open_application(stack)
        chat = LiveChat(prompt, application, services, jobs, await read_display(application))
        stack.push_async_callback(chat.close)
        await chat.open(arguments)
        _collect_garbage_in_small_portions()
        jobs.create_task(asyncio.to_thread(preload_highlighting, THEMES[prompt.theme], *_PRELOADED_LANGUAGES))
        await chat.run()


def _collect_garbage_in_small_portions() -> None:
    """Collect garbage often, without startup objects, to avoid pauses of 30 ms while typing."""
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)


class LiveChat:
    """Interactive chat of one user at one terminal; implements `PromptHandler`."""

    def __init__(
        self,
        prompt: PromptScreen,
        application: Application,
        services: Services,
        jobs: asyncio.TaskGroup,
        display: Display,
    ) -> None:
        self._prompt = prompt
        self._application = application
        self._services = services
        self._jobs = jobs
        self._activity = Activity(
            prompt.canvas, THEMES[prompt.theme], lambda: self._screen.display, lambda: prompt.is_asking
        )
        pictures = application.identity.folder / "pictures"
        self._screen = TuiScreen(prompt, self._activity, display, pictures, self._save_display)
        self._controller = ChatController(
            application, jobs, self._screen, self._on_event, lambda: services.settings().cli.busy
        )
        self._input_queue: asyncio.Queue[TypedInput] = asyncio.Queue()
        self._redraw_needed = asyncio.Event()
        self._status = StatusInfo()
        self._early_events: list[TurnEvent] | None = []

    async def open(self, arguments: argparse.Namespace) -> None:
        """Open the requested session and show its state."""
        for file in arguments.image:
            self._prompt.line.attach(open_image(file))
        chat, notes = await self._controller.open(build_open_request(arguments, _SURFACE))
        for note in (*await self._build_greeting(chat), *notes):
            self._screen.show(note)
        await self._replay()
        self._prompt.attach_handler(self)
        early_events, self._early_events = self._early_events or [], None
        for event in early_events:
            self._on_event(event)
        self._redraw_needed.set()
        self._controller.active_session.start_background_task(self._controller.ask_for_trust(self._confirm_trust))
        if self._services.settings().update.check:
            self._jobs.create_task(self._report_new_version())

    async def _report_new_version(self) -> None:
        from talaria.cli.commands.update.check import describe_new_version  # noqa: PLC0415 (loaded if the user wants it)

        if text := await asyncio.to_thread(describe_new_version, self._services):
            self._activity.add_dim(text)
            self._redraw_needed.set()

    async def _confirm_trust(self, question: str) -> bool:
        return await self._prompt.approval.ask(question, confirmation_of, TRUST) == "yes"

    async def run(self) -> None:
        """Handle input, draw and update the status bar, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._draw())
            group.create_task(self._poll_status())
            while True:
                await self._act(await self._input_queue.get())

    async def close(self) -> None:
        """Close the session, and show how to resume it if it has messages."""
        active_session = self._controller.active_session
        if active_session.is_open and not self._screen.is_muted:
            self._activity.abort()
            with suppress(TalariaError):  # the hint is not worth an error
                await self._show_resume_hint(active_session.session_id)
            self._activity.redraw_changes()
        await active_session.close()

    def submit(self, typed: TypedInput) -> None:
        """Handle a submitted line."""
        if typed.text == "?":
            typed = TypedInput("/keys", "/keys", typed.pictures)
        if self._controller.is_urgent(typed.text):
            self._controller.active_session.start_background_task(self._act(typed))  # cancelled before the store closes
        else:
            self._input_queue.put_nowait(typed)

    def interrupt(self) -> None:
        """Stop the turn, clear the line, or offer to leave.

        Leaves if that was offered by the previous key, or if the session has moved.
        """
        if self._screen.is_muted or self._prompt.leave_confirmed:
            self._prompt.leave()
        elif self._controller.stop():
            return
        elif self._prompt.line.buffer.text:
            self._prompt.line.clear()
        else:
            self._prompt.offer_leave()

    def escape(self) -> None:
        """Stop the running turn."""
        self._controller.stop()

    def unfold(self) -> None:
        """Show the full output of the last tool call, and toggle the details of running ones."""
        shown = self._activity.unfold()
        if shown:
            self._activity.add(shown)
        verbose = self._screen.display.progress == "verbose"
        self._screen.display = msgspec.structs.replace(self._screen.display, progress="all" if verbose else "verbose")
        self._redraw_needed.set()

    def paste(self) -> None:
        """Insert the content of the clipboard."""
        self.submit(TypedInput("/paste", "/paste"))

    def edit(self) -> None:
        """Open the input in the user's editor."""
        self._jobs.create_task(self._edit())

    def commands(self) -> Sequence[CommandEntry]:
        """Return name, usage and help of each command."""
        return [(command.name, command.usage, command.help) for command in self._controller.commands]

    async def list_completions(self, name: str, arguments: str) -> Sequence[tuple[str, str]]:
        """Return the completions of a command."""
        return await self._controller.list_completions(name, arguments)

    async def _build_greeting(self, chat: OpenSession) -> list[str]:
        identity = self._application.identity
        folder = abbreviate_home(chat.workspace.folder, self._services.environment)
        lines = [f"**Talaria** {identity.version.removeprefix('talaria ')} · {chat.model} · {folder}"]
        if await claim_first_run(self._application):
            lines += ["\n".join(f"- {line}" for line in await asyncio.to_thread(describe_first_run, self._services))]
        return lines

    async def _replay(self) -> None:
        """Show the last exchanges of a resumed session."""
        chat, session_id = self._controller.active_session.chat, self._controller.active_session.session_id
        past_exchanges = await self._controller.active_session.store.read(
            lambda tx: read_last_exchanges(tx, session_id)
        )
        if not past_exchanges:
            return
        title = f" *{escape_markdown(chat.title)}*" if chat.title else ""
        self._activity.add_dim(f"Resuming{title}. `/history` shows more.")
        for exchange in past_exchanges:
            self._activity.add_author_message(exchange.text, exchange.author)
            if exchange.reply:
                self._activity.add_blank_line()
                self._screen.show(exchange.reply)
        self._activity.add_blank_line()

    async def _show_resume_hint(self, session_id: SessionId) -> None:
        if await self._application.store.read(lambda tx: is_resumable(tx, session_id)):
            self._activity.add_dim(format_resume_hint(session_id))

    async def _edit(self) -> None:
        async def use() -> None:
            environment = self._controller.active_session.chat.workspace.environment
            self._prompt.line.set_input_text(await edit_text(self._prompt.line.text, environment))

        try:
            await self._screen.run_in_foreground(use)
        except TalariaError as error:
            self._screen.show(str(error))

    def _notify(self, text: str) -> None:
        """Notify a user who may be looking at another window."""
        cli = self._services.settings().cli
        if self._prompt.idle_seconds < cli.notify_seconds:
            return
        match cli.notify:
            case "bell":
                self._prompt.canvas.ring()
            case "desktop":
                self._prompt.canvas.notify(text)

    def _on_event(self, event: TurnEvent) -> None:
        if self._early_events is not None:  # not before the earlier messages are shown
            self._early_events.append(event)
            return
        self._activity.show_event(event)
        if isinstance(event, ModelCalled):
            self._status = msgspec.structs.replace(
                self._status, context=event.context, exact=True, context_limit=event.context_limit
            )
        if isinstance(event, TurnAnswered) and self._screen.display.footer:
            self._activity.add_dim(self._format_footer())
        if isinstance(event, ApprovalAsked | QuestionAsked):
            self._notify("Talaria has a question")
        elif isinstance(event, TurnEnd):
            self._notify("Talaria is done")
        self._redraw_needed.set()

    async def _act(self, typed: TypedInput) -> None:
        text = typed.text
        is_pending = self._controller.active_session.busy and not is_command(text) and not text.startswith("!")
        if text != "/paste":
            pictures = [image.source for image in typed.pictures]
            self._activity.add_user_message(typed.shown, pictures, pending=text if is_pending else None)
        is_done = await self._controller.act(text, typed.pictures)
        if is_pending:
            self._activity.settle_pending(text, is_stored=is_done)
        if self._screen.is_leaving:
            self._prompt.leave()
        self._redraw_needed.set()

    async def _draw(self) -> None:
        active_session = self._controller.active_session
        while True:
            await self._redraw_needed.wait()
            self._redraw_needed.clear()
            while active_session.busy and not self._screen.is_muted:
                self._activity.begin()
                self._activity.redraw_changes()
                self._draw_status()
                await asyncio.sleep(_FRAME_SECONDS)
            self._activity.end()
            self._activity.redraw_changes()
            await self._refresh_status()

    async def _poll_status(self) -> None:
        while True:
            await self._refresh_status()
            await asyncio.sleep(_POLL_SECONDS)

    async def _refresh_status(self) -> None:
        """Read the data of the status bar from the store."""
        active_session = self._controller.active_session
        if not active_session.is_open:
            return
        chat, session_id = active_session.chat, active_session.session_id
        before = self._status
        known = await active_session.store.read(lambda tx: read_status(tx, session_id, before))
        self._status = msgspec.structs.replace(
            known, model=chat.model, context_limit=chat.info.context_limit, priced=chat.info.has_price
        )
        self._prompt.folder = chat.workspace.folder
        self._draw_status()

    def _draw_status(self) -> None:
        self._prompt.status = render_status_line(self._status, self._prompt.canvas.width)
        self._prompt.canvas.app.invalidate()

    def _format_footer(self) -> str:
        situation = self._status
        folder = abbreviate_home(self._controller.active_session.chat.workspace.folder, self._services.environment)
        percent = f"{situation.context_percent} % of the context"
        return escape_markdown(f"{situation.model} · {percent} · {situation.cost} · {folder}")

    def _save_display(self, display: Display) -> None:
        self._jobs.create_task(self._run_save(save_display(self._application, display)))

    async def _run_save(self, save: Awaitable[None]) -> None:
        await save

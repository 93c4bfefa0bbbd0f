"""Terminal chat controller: runs messages, commands and shell lines, routes questions, and replays a session's end."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Protocol

from msgspec import Struct, structs

from talaria.cli.chat.approval import answer_in_terminal
from talaria.cli.chat.options import SOURCE
from talaria.cli.terminal_text import escape_control
from talaria.commands.application import Application
from talaria.commands.arguments import escape_markdown, render_message
from talaria.commands.command import (
    DISPLAY,
    Command,
    CommandContext,
    Display,
    Surface,
    TerminalSurface,
    find_commands,
    is_command,
    run_command,
    select_usable_commands,
)
from talaria.commands.mcp import list_prompt_commands
from talaria.commands.registry import REGISTRY, load_own_commands
from talaria.commands.skills import SKILLS
from talaria.contracts.store import Transaction
from talaria.contracts.stores.sessions import StoredMessage
from talaria.contracts.tool import Workspace
from talaria.contracts.values import SINGLE, NamedValue
from talaria.core.errors import Refused, TalariaError
from talaria.core.events import ApprovalAsked, QuestionAsked, TurnEvent
from talaria.core.files import person_umask
from talaria.core.ids import SessionId
from talaria.core.mentions import build_message_parts
from talaria.core.messages import OWNER, Image, Message, Text
from talaria.handoff.service import cancel_handoff
from talaria.runtime.active_session import ActiveSession, deliver_completions
from talaria.runtime.open_session import OpenRequest, OpenSession, SurfaceInfo
from talaria.runtime.turns import MIRROR, read_message
from talaria.sessions.branches import list_exchanges
from talaria.sessions.transcript_export import drop_program_messages
from talaria.settings.profiles import FolderTrust, UnreadableFolder, compute_digest, find_project_files

WELCOMED = NamedValue("welcomed", bool)
_FILES_SHOWN = 12
_MOVED_NOTICE = (
    "This conversation was moved elsewhere. The rest of the answer appears there; this terminal "
    "closes when the turn ends."
)
_REPLAYED_EXCHANGES = 3
_RECENT_MESSAGES = 60
_TEXT_LIMIT = 600
_LAST_TEXT_LIMIT = 3_000


class ChatScreen(Surface, TerminalSurface, Protocol):
    """Terminal screen of the chat."""

    @property
    def is_muted(self) -> bool:
        """Return whether the running turn is no longer shown here."""

    async def ask(self, question: str) -> str:
        """Return the answer that the user types."""

    async def approve(self, asked: ApprovalAsked) -> str:
        """Show the exact action and return the user's decision."""

    async def wait_for_attention(self) -> None:
        """Wait until the user is not typing anything else, where this can be detected."""

    async def run_in_foreground(self, use: Callable[[], Awaitable[None]]) -> None:
        """Release the terminal to another program while ``use`` runs."""


class ChatController:
    """Controller for one user at one terminal, with one session at a time. ``publish`` shows events."""

    def __init__(
        self,
        application: Application,
        jobs: asyncio.TaskGroup,
        chat_screen: ChatScreen,
        publish: Callable[[TurnEvent], None],
        busy: Callable[[], str],
    ) -> None:
        self._application = application
        self._jobs = jobs
        self._chat_screen = chat_screen
        self._publish = publish
        self._busy = busy
        self._commands: tuple[Command, ...] = ()
        self._trust = FolderTrust(application.identity.folder)
        self.active_session = ActiveSession(
            application, OpenRequest(surface=SurfaceInfo(source=SOURCE, folder=Path.cwd())), self._on_event, jobs
        )

    @property
    def commands(self) -> tuple[Command, ...]:
        """Commands available here, with the prompts of MCP servers."""
        return (*self._commands, *list_prompt_commands(self.active_session))

    async def open(self, request: OpenRequest) -> tuple[OpenSession, list[str]]:
        """Open the requested session and return it with notices for the user."""
        self.active_session.request = structs.replace(
            request, surface=structs.replace(request.surface, on_moved=self._on_moved)
        )
        chat = await self.active_session.open()
        self.active_session.start_background_task(
            self._application.supervise_background(self._jobs, self._get_session_id)
        )
        self.active_session.start_background_task(deliver_completions(self.active_session))
        problems = self._load_commands()
        return chat, [*self._application.notes, *chat.notes, *problems]

    def _load_commands(self) -> tuple[str, ...]:
        custom, problems = load_own_commands(self._application)
        self._commands = select_usable_commands((*REGISTRY, *custom), terminal=True)
        return problems

    async def ask_for_trust(self, confirm: Callable[[str], Awaitable[bool]]) -> None:
        """Ask whether to trust the commands and skills of the project folder; until then they are ignored."""
        folder = Path.cwd()
        if self._trust.is_trusted(folder):
            return
        try:
            while not self._trust.is_trusted(folder):  # ask again if they change while the user reads
                digest = compute_digest(folder)
                self._chat_screen.show(_format_files_notice(folder))
                if not await confirm("Trust the commands and skills in this folder?"):
                    self._chat_screen.show("They are ignored. Run `talaria trust` in this folder to use them.")
                    return
                self._trust.trust(folder, digest)
                if not self._trust.is_trusted(folder):
                    self._chat_screen.show("These files have just changed. Please check them again.")
        except UnreadableFolder as error:
            self._chat_screen.show(f"{escape_markdown(str(error))} This folder's commands and skills are ignored.")
            return
        self._load_commands()
        self._chat_screen.show("Trusted. Its commands work now; its skills work from the next conversation.")

    async def act(self, text: str, pictures: Sequence[Image] = ()) -> bool:
        """Run a command or shell line, or store a message; an error is shown, and ``False`` returned."""
        try:
            if is_command(text):
                await run_command(text, self.build_context())
                if text.startswith(f"/{SKILLS.name} "):  # it may have added or removed commands
                    self._load_commands()
            elif text.startswith("!"):
                await self._run_shell_line(text[1:].strip(), self.active_session.chat.workspace)
            else:
                await self._send(text, pictures)
        except TalariaError as error:
            self._chat_screen.show(error.for_owner)
            return False
        return True

    def stop(self) -> bool:
        """Stop the running turn and custom shell commands; ``False`` if nothing was running.

        Without them, cancels the handoff that the user waits for.
        """
        if not self.active_session.is_open:
            return False
        lines = self._application.shell.stop(self.active_session.chat.workspace)
        return self.active_session.chat.conversation.stop() or lines or self._cancel_handoff()

    def _cancel_handoff(self) -> bool:
        """Withdraw the handoff that the user waits for; ``False`` if there is none."""
        if self.active_session.departure.session_id is None or self._chat_screen.is_muted:
            return False
        self.active_session.start_background_task(self._withdraw())
        return True

    async def _withdraw(self) -> None:
        try:
            await cancel_handoff(self.active_session.store, self.active_session.session_id, "you cancelled it")
        except TalariaError as error:
            self._chat_screen.show(str(error))

    def is_urgent(self, text: str) -> bool:
        """Return whether a line is a command that may run before queued lines."""
        found = find_commands(text.partition(" ")[0], self.commands) if is_command(text) else []
        return len(found) == 1 and found[0].during_turn == "runs"

    async def list_completions(self, name: str, arguments: str) -> Sequence[tuple[str, str]]:
        """Return the completions of a command."""
        found = find_commands(name, self.commands)
        return (
            await found[0].offers(structs.replace(self.build_context(), arguments=arguments)) if len(found) == 1 else ()
        )

    def _get_session_id(self) -> SessionId | None:
        return self.active_session.session_id if self.active_session.is_open else None

    def build_context(self) -> CommandContext:
        """Return the context for a command."""
        return CommandContext(
            arguments="",
            active_session=self.active_session,
            surface=self._chat_screen,
            application=self._application,
            commands=self.commands,
            screen=self._chat_screen,
        )

    def _on_event(self, event: TurnEvent) -> None:
        if self._chat_screen.is_muted:
            return
        self._publish(event)
        if isinstance(event, ApprovalAsked | QuestionAsked):
            self._jobs.create_task(answer_in_terminal(event, self.active_session.chat.questions, self._chat_screen))

    def _on_moved(self) -> None:
        """Exit after the running turn: the session has moved to another surface."""
        if self.active_session.departure.session_id is None and not self._chat_screen.is_muted:
            self._chat_screen.mute()
            self._chat_screen.show(_MOVED_NOTICE)
            self.active_session.start_background_task(self._leave_when_idle())

    async def _leave_when_idle(self) -> None:
        with suppress(TalariaError):
            await self.active_session.chat.conversation.wait_until_idle()
        self._chat_screen.leave()

    async def _send(self, text: str, pictures: Sequence[Image]) -> None:
        parts = (
            build_message_parts(text, self.active_session.chat.workspace.folder) if text else [Text("Look at this.")]
        )
        busy = self._busy()
        conversation = self.active_session.chat.conversation
        if busy == "interrupt" and conversation.turn is not None:  # one that is about to begin may be for this message
            conversation.stop()
        await self.active_session.put(*parts, *pictures, sender=OWNER, steering=busy == "steer")
        self._jobs.create_task(self._report_failure(self.active_session.chat))

    async def _report_failure(self, chat: OpenSession) -> None:
        """Show the error that kept a turn from running, if any."""
        try:
            await chat.conversation.wait_until_idle()
        except TalariaError as error:
            self._chat_screen.show(error.for_owner)

    async def _run_shell_line(self, line: str, workspace: Workspace) -> None:
        """Run a line in the user's shell, in the session's folder and with full use of the terminal."""
        if not line:
            raise Refused("Type a command after the exclamation mark, for example `!git status`.")
        shell = workspace.environment.get("SHELL") or "/bin/sh"

        async def run() -> None:
            process = await asyncio.create_subprocess_exec(
                shell, "-c", line, cwd=workspace.folder, env=workspace.environment, umask=person_umask()
            )
            code = await process.wait()
            if code:
                self._chat_screen.show(f"`{line}` ended with exit code {code}.")

        try:
            await self._chat_screen.run_in_foreground(run)
        except OSError as error:
            raise Refused(f"Can't run the command: {error}.") from error


async def read_display(application: Application) -> Display:
    """Return the stored display options of this terminal."""
    return await application.store.read(lambda tx: DISPLAY.get(tx, SOURCE)) or Display()


async def save_display(application: Application, display: Display) -> None:
    """Store the display options for the next start."""
    await application.store.write(lambda tx: DISPLAY.write(tx, SOURCE, display))


async def claim_first_run(application: Application) -> bool:
    """Return whether this is the first run, and record that it has happened."""
    welcomed = await application.store.read(lambda tx: WELCOMED.get(tx, SINGLE))
    if not welcomed:
        await application.store.write(lambda tx: WELCOMED.write(tx, SINGLE, value=True))
    return not welcomed


class Exchange(Struct, frozen=True):
    """Message with its author, if known, and the reply as Markdown; empty while there is none."""

    text: str
    author: str = ""
    reply: str = ""


def read_last_exchanges(tx: Transaction, session_id: SessionId) -> list[Exchange]:
    """Return the last exchanges, oldest first, then pending messages; long replies are cut."""
    messages = drop_program_messages(tx.messages.last(session_id, _RECENT_MESSAGES))
    begun = list_exchanges(messages)[-_REPLAYED_EXCHANGES:]
    ends = [*(one.seq for one in begun), messages[-1].seq + 1] if begun else []
    found = [
        _read_exchange(one, [later for later in messages if first < later.seq < end], last=one is begun[-1])
        for one, (first, end) in zip(begun, pairwise(ends), strict=True)
    ]
    waiting = [item for item in tx.inbox.list_unsettled(session_id) if item.state == "waiting" and item.kind != MIRROR]
    return [*found, *(_build_exchange(read_message(item.payload)) for item in waiting)]


def is_resumable(tx: Transaction, session_id: SessionId) -> bool:
    """Return whether a session has messages and hasn't moved to a chat."""
    session = tx.sessions.get(session_id)
    return session is not None and session.message_count > 0 and not tx.bindings.of_session(session_id)


def format_resume_hint(session_id: SessionId) -> str:
    """Return a sentence on how to resume a session."""
    return f"Resume this conversation with: talaria chat -r {session_id}"


def _format_files_notice(folder: Path) -> str:
    """Return the notice that lists the project's commands and skills, with their names escaped."""
    files = find_project_files(folder)
    names = [f"- {escape_markdown(escape_control(str(file.relative_to(folder))))}" for file in files[:_FILES_SHOWN]]
    more = [f"- and {len(files) - _FILES_SHOWN:,} more"] if len(files) > _FILES_SHOWN else []
    intro = (
        "This folder has its own commands and skills, which can run programs. They are ignored until you trust them:"
    )
    return "\n".join([intro, "", *names, *more])


def _read_exchange(begun: StoredMessage, later: Sequence[StoredMessage], *, last: bool) -> Exchange:
    limit = _LAST_TEXT_LIMIT if last else _TEXT_LIMIT
    replies = [one.message for one in later if one.message.role == "assistant"]
    texts = [render_message(reply, limit) for reply in replies if _join_text(reply).strip()]
    return _build_exchange(begun.message, texts[-1] if texts else "")


def _build_exchange(message: Message, reply: str = "") -> Exchange:
    return Exchange(_join_text(message), message.author, reply)


def _join_text(message: Message) -> str:
    return "\n".join(part.text for part in message.parts if isinstance(part, Text))

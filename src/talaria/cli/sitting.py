"""A person at a terminal: what they type is said, used as a command or run by the shell; questions reach them."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec

from talaria.cli.approval import answer_in_terminal
from talaria.cli.mentions import parts_of
from talaria.cli.wishes import SOURCE
from talaria.commands.command import Command, Display, Errand, Place, Screen
from talaria.commands.custom import load_custom
from talaria.commands.finding import matching
from talaria.commands.house import House
from talaria.commands.registry import REGISTRY
from talaria.commands.using import is_command, usable, use_command
from talaria.contracts.tool import Workspace
from talaria.core.errors import Refused, TalariaError
from talaria.core.events import ApprovalAsked, QuestionAsked, TurnEvent
from talaria.core.ids import SessionId
from talaria.core.messages import Image, Text
from talaria.core.senders import OWNER
from talaria.core.umask import person_umask
from talaria.sessions.chat import Chat, ChatWish
from talaria.sessions.departure import cancel_handoff
from talaria.sessions.listening import listen
from talaria.sessions.seat import Seat
from talaria.settings.folder_trust import FolderTrust, project_files

_WELCOMED = "welcomed"
_DISPLAY = f"display:{SOURCE}"
_FILES_SHOWN = 20
_TAKEN = (
    "This conversation was taken to another place. The rest of the answer is seen there; this terminal ends when the"
    " turn does."
)


class Face(Place, Screen, Protocol):
    """One kind of terminal."""

    @property
    def hushed(self) -> bool:
        """Whether nothing more is to be seen of the running turn."""

    async def ask(self, question: str) -> str:
        """Return what the person types as the answer."""

    async def approve(self, asked: ApprovalAsked) -> str:
        """Show exactly what would happen, and return the decision of the person."""

    async def wait_for_attention(self) -> None:
        """Wait until the person is not typing something else, where that can be known."""

    async def lend(self, use: Callable[[], Awaitable[None]]) -> None:
        """Leave the terminal to another program meanwhile."""


class Sitting:
    """One person, one terminal, one conversation at a time. ``emit`` shows what happens."""

    def __init__(
        self,
        house: House,
        jobs: asyncio.TaskGroup,
        face: Face,
        emit: Callable[[TurnEvent], None],
        busy: Callable[[], str],
    ) -> None:
        self._house = house
        self._jobs = jobs
        self._face = face
        self._emit = emit
        self._busy = busy
        self._commands: tuple[Command, ...] = ()
        self._trust = FolderTrust(house.identity.folder)
        self.seat = Seat(house, ChatWish(source=SOURCE, folder=Path.cwd()), self._event, jobs)

    @property
    def commands(self) -> tuple[Command, ...]:
        """What can be typed here."""
        return self._commands

    async def open(self, wish: ChatWish) -> tuple[Chat, list[str]]:
        """Open the conversation that was asked for; also returns sentences that the person should read."""
        self.seat.wish = msgspec.structs.replace(wish, moved=self._moved)
        chat = await self.seat.open()
        self.seat.start_beside(self._house.tend_background(self._jobs, self._here))
        self.seat.start_beside(listen(self.seat))
        remarks = self._load_commands()
        if not self._trust.is_trusted(Path.cwd()):
            self.seat.start_beside(self._ask_for_trust(Path.cwd()))
        return chat, [*self._house.notes, *chat.notes, *remarks]

    def _load_commands(self) -> tuple[str, ...]:
        custom, remarks = load_custom(self._house.command_folders)
        self._commands = usable((*REGISTRY, *custom), terminal=True)
        return remarks

    async def _ask_for_trust(self, folder: Path) -> None:
        """Ask whether the commands and skills of a project may take effect; they are ignored until then."""
        files = "\n".join(f"  {file.relative_to(folder)}" for file in project_files(folder)[:_FILES_SHOWN])
        question = f"This folder brings its own commands and skills, which can run programs:\n{files}\nTrust it?"
        if await self._face.choose(question, ["No, ignore them", "Yes, trust them as they are now"]) != 1:
            self._face.show("They are ignored. `talaria trust` lets them take effect.")
            return
        self._trust.trust(folder)
        self._load_commands()
        self._face.show("Trusted. Its commands work now, its skills from the next conversation on.")

    async def act(self, text: str, pictures: Sequence[Image] = ()) -> None:
        """Do what a line says; what goes wrong is told, not raised."""
        try:
            if is_command(text):
                await use_command(text, self.errand())
            elif text.startswith("!"):
                await self._run_shell_line(text[1:].strip(), self.seat.chat.workspace)
            else:
                await self._say(text, pictures)
        except TalariaError as error:
            self._face.show(error.for_owner)

    def stop(self) -> bool:
        """End the running turn, and what a command of the person's own runs; ``False`` when nothing was running."""
        if not self.seat.is_open:
            return False
        lines = self._house.shell.stop(self.seat.chat.workspace)
        return self.seat.chat.conversation.stop() or lines or self._cancel_handoff()

    def _cancel_handoff(self) -> bool:
        """Withdraw a handoff that the person waits for; ``False`` where there is none."""
        if self.seat.departure.session_id is None or self._face.hushed:
            return False
        self.seat.start_beside(self._withdraw())
        return True

    async def _withdraw(self) -> None:
        try:
            await cancel_handoff(self.seat.store, self.seat.session_id, "you cancelled it")
        except TalariaError as error:
            self._face.show(str(error))

    def is_urgent(self, text: str) -> bool:
        """Tell whether a line is a command that need not wait for those before it."""
        found = matching(text.partition(" ")[0], self._commands) if is_command(text) else []
        return len(found) == 1 and found[0].during_turn == "runs"

    async def offers(self, name: str, words: str) -> Sequence[tuple[str, str]]:
        """Return what may follow a command."""
        found = matching(name, self._commands)
        return await found[0].offers(msgspec.structs.replace(self.errand(), words=words)) if len(found) == 1 else ()

    def _here(self) -> SessionId | None:
        return self.seat.session_id if self.seat.is_open else None

    def errand(self) -> Errand:
        """Return what a command may act on."""
        return Errand(
            words="", seat=self.seat, place=self._face, house=self._house, commands=self._commands, screen=self._face
        )

    def _event(self, event: TurnEvent) -> None:
        if self._face.hushed:
            return
        self._emit(event)
        if isinstance(event, ApprovalAsked | QuestionAsked):
            self._jobs.create_task(answer_in_terminal(event, self.seat.chat.questions, self._face))

    def _moved(self) -> None:
        """Leave behind the running turn: somebody has taken the conversation elsewhere."""
        if self.seat.departure.session_id is None and not self._face.hushed:
            self._face.hush()
            self._face.show(_TAKEN)
            self.seat.start_beside(self._leave())

    async def _leave(self) -> None:
        with suppress(TalariaError):
            await self.seat.chat.conversation.settled()
        self._face.leave()

    async def _say(self, text: str, pictures: Sequence[Image]) -> None:
        parts = parts_of(text, self.seat.chat.workspace.folder) if text else [Text("Look at this.")]
        busy = self._busy()
        if self.seat.busy and busy == "interrupt":
            self.seat.chat.conversation.stop()
        await self.seat.put(*parts, *pictures, sender=OWNER, steering=busy == "steer")
        self._jobs.create_task(self._report(self.seat.chat))

    async def _report(self, chat: Chat) -> None:
        """Say what kept a turn from being taken, if anything did."""
        try:
            await chat.conversation.settled()
        except TalariaError as error:
            self._face.show(error.for_owner)

    async def _run_shell_line(self, line: str, workspace: Workspace) -> None:
        """Run a line in the person's shell, where the conversation works; the terminal is its own meanwhile."""
        if not line:
            raise Refused("Type a command after the exclamation mark, for example `!git status`.")
        shell = workspace.environment.get("SHELL") or "/bin/sh"

        async def run() -> None:
            process = await asyncio.create_subprocess_exec(
                shell, "-c", line, cwd=workspace.folder, env=workspace.environment, umask=person_umask()
            )
            code = await process.wait()
            if code:
                self._face.show(f"`{line}` ended with exit code {code}.")

        try:
            await self._face.lend(run)
        except OSError as error:
            raise Refused(f"The command cannot be run: {error}.") from error


async def read_display(house: House) -> Display:
    """Return what this terminal shows beside replies."""
    entry = await house.store.read(lambda tx: tx.state.get(_DISPLAY))
    return msgspec.json.decode(entry.value, type=Display) if entry else Display()


async def keep_display(house: House, display: Display) -> None:
    """Keep what this terminal shows, for the next start."""
    await house.store.write(lambda tx: tx.state.put(_DISPLAY, msgspec.json.encode(display).decode()))


async def is_first_time(house: House) -> bool:
    """Tell whether nobody has been welcomed here before; the next time it is said to be so."""
    entry = await house.store.read(lambda tx: tx.state.get(_WELCOMED))
    if entry is None:
        await house.store.write(lambda tx: tx.state.put(_WELCOMED, "yes"))
    return entry is None

"""Slash commands, branches and completions of the web app's conversations."""

import asyncio
from collections.abc import Sequence

from msgspec import structs

from talaria.commands.application import Application
from talaria.commands.branches import branch_after, edit_message
from talaria.commands.command import (
    Author,
    Command,
    CommandContext,
    Display,
    find_commands,
    run_command,
    select_usable_commands,
)
from talaria.commands.mcp import list_prompt_commands
from talaria.commands.registry import REGISTRY, load_own_commands
from talaria.core.addresses import Address
from talaria.core.errors import Refused
from talaria.core.events import Noticed
from talaria.core.mentions import build_message_parts, complete_files
from talaria.core.messages import Part, Text
from talaria.web.conversations import WebConversations, WebSession
from talaria.web.front_door import SOURCE, WebCaller
from talaria.web.wire import BranchRequest, CommandReply


class WebCommands:
    """Commands of conversations that are open in this process."""

    def __init__(self, application: Application, conversations: WebConversations) -> None:
        self._application = application
        self._conversations = conversations

    def commands(self, caller: WebCaller) -> tuple[Command, ...]:
        """Return the slash commands that a person may use here."""
        custom, _ = load_own_commands(self._application)
        return select_usable_commands((*REGISTRY, *custom), terminal=False, owner=caller.is_owner)

    async def run_command(self, session: WebSession, text: str, caller: WebCaller) -> CommandReply:
        """Run a slash command; what it shows after its end is a notice in the conversation."""
        await session.finish_ended_turn()
        surface = WebSurface(self._conversations, session)
        await run_command(text, self._make_context(session, surface, caller))
        return CommandReply(surface.finish(), session.take_next())

    async def branch(self, session: WebSession, branch: BranchRequest, caller: WebCaller) -> CommandReply:
        """Edit a message in a branch, or branch after it; raises `Refused` during a turn."""
        await session.finish_ended_turn()
        if session.busy:
            raise Refused("A turn is running. Stop it first.")
        surface = WebSurface(self._conversations, session)
        context = self._make_context(session, surface, caller)
        if branch.text.strip():
            await edit_message(context, branch.seq, await self.make_parts(session, branch.text, caller))
        else:
            await branch_after(context, branch.seq)
        return CommandReply(surface.finish(), session.take_next())

    async def make_parts(self, session: WebSession, text: str, caller: WebCaller) -> list[Part]:
        """Return the parts of a message; files that the owner mentions with ``@`` are among them."""
        if "@" not in text or not caller.is_owner:
            return [Text(text)]
        return await asyncio.to_thread(build_message_parts, text, session.chat.workspace.folder)

    async def complete(self, session: WebSession, text: str, caller: WebCaller) -> Sequence[tuple[str, str]]:
        """Return the completions of a command's arguments, or of a file name after ``@``."""
        if text.startswith("@"):
            folder = session.chat.workspace.folder
            names = await asyncio.to_thread(complete_files, text[1:], folder) if caller.is_owner else ()
            return [(name, "") for name in names]
        name, _, arguments = text.partition(" ")
        context = self._make_context(session, WebSurface(self._conversations, session), caller)
        found = find_commands(name, context.commands)
        return await found[0].offers(structs.replace(context, arguments=arguments)) if len(found) == 1 else ()

    def _make_context(self, session: WebSession, surface: "WebSurface", caller: WebCaller) -> CommandContext:
        return CommandContext(
            arguments="",
            active_session=session,
            surface=surface,
            application=self._application,
            commands=(*self.commands(caller), *list_prompt_commands(session)),
            author=Author(name=caller.person, owner=caller.is_owner, id=caller.person),
        )


class WebSurface:
    """A conversation in the browser, as commands use it; implements `Surface`."""

    name = SOURCE

    def __init__(self, conversations: WebConversations, session: WebSession) -> None:
        self.display = Display()
        self._conversations = conversations
        self._session = session
        self._shown: list[str] | None = []

    @property
    def address(self) -> Address | None:
        """The address of a guest's messages, so that they count as theirs; none for the owner, as in a terminal."""
        person = self._session.caller.person
        return Address(SOURCE, person, user_id=person) if person else None

    @property
    def home_address(self) -> Address | None:
        """The same: conversations of the web app start at their person's address."""
        return self.address

    def change_display(self, display: Display) -> None:
        """Change how the rest of this command is shown."""
        self.display = display

    def show(self, text: str) -> None:
        """Show Markdown text with the reply to the command, or later as a notice."""
        if self._shown is not None:
            self._shown.append(text)
        elif self._session.is_open:
            self._conversations.hub.get_channel(self._session.session_id).publish(Noticed(text, lasting=True))

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        """Ask the person to choose."""
        return await self._conversations.choose(self._session.session_id, question, choices)

    def finish(self) -> list[str]:
        """Return what was shown; from now on it is shown as notices."""
        shown, self._shown = self._shown or [], None
        return shown

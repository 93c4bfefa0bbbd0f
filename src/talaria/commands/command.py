"""Commands: their declaration, and how a typed one is found and run."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Literal, Protocol

from msgspec import Struct, structs

from talaria.commands.application import Application
from talaria.contracts.hooks import COMMAND, Fact, session_facts
from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address
from talaria.core.errors import TalariaError
from talaria.core.ids import SessionId
from talaria.core.messages import OWNER, Image, chat_sender
from talaria.core.session_context import SessionContext
from talaria.runtime.active_session import ActiveSession
from talaria.sessions.context import build_surface_context

Category = Literal["Session", "Turn", "Model", "Abilities", "Display", "Program", "Your own"]
Progress = Literal["off", "new", "all", "verbose"]


class Display(Struct, frozen=True, omit_defaults=True):
    """Display options of a surface: tool calls, reasoning, a footer below each reply.

    ``streaming`` shows replies while they are written, as far as the network supports it.
    """

    progress: Progress = "all"
    reasoning: bool = False
    footer: bool = False
    streaming: bool = True


DISPLAY = NamedValue("display", Display)  # by chat, or by surface


class Author(Struct, frozen=True):
    """Sender of a command; ``id`` is their id on the network."""

    name: str = ""
    owner: bool = True
    id: str = ""


class Surface(Protocol):
    """Surface as commands use it."""

    @property
    def name(self) -> str:
        """Name: ``cli``, or that of a network."""

    @property
    def address(self) -> Address | None:
        """Address, if messages can be sent there."""

    @property
    def home_address(self) -> Address | None:
        """Address for messages that start a conversation, if messages can be sent there."""

    @property
    def display(self) -> Display:
        """Current display options."""

    def change_display(self, display: Display) -> None:
        """Change the display options from now on."""

    def show(self, text: str) -> None:
        """Show Markdown text to the user."""

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        """Ask the user to choose and return the index; ``None`` if they decline."""


class TerminalSurface(Protocol):
    """Operations that only a terminal supports."""

    @property
    def theme(self) -> str:
        """Current theme."""

    @property
    def keys(self) -> str:
        """Keyboard shortcuts, as Markdown."""

    def change_theme(self, name: str) -> None:
        """Change the theme; raises `NotFound` with the known names."""

    def attach(self, picture: Image) -> None:
        """Send this image with the next message."""

    def set_input_text(self, text: str) -> None:
        """Put text into the input line, for editing."""

    def copy(self, text: str) -> None:
        """Copy text to the clipboard."""

    async def paste(self) -> str | Image | None:
        """Return the content of the clipboard, or ``None`` if it is empty or unavailable."""

    def mute(self) -> None:
        """Stop showing the running turn and asking its questions here; another surface does so."""

    def leave(self) -> None:
        """Exit the program when this command is done."""


class GatewayControl(Protocol):
    """Operations that only a gateway supports."""

    async def restart(self, session_id: SessionId, reply_to: Address) -> float:
        """Restart soon and report the restart to this chat; return the grace period of running turns in seconds."""


class CommandContext(Struct, frozen=True, kw_only=True):
    """Context of one command call: its arguments and everything it may act on.

    ``screen`` is set for commands in the terminal, ``service`` for those in chats.
    """

    arguments: str
    active_session: ActiveSession
    surface: Surface
    application: Application
    commands: "tuple[Command, ...]"
    author: Author = Author()
    screen: TerminalSurface | None = None
    service: GatewayControl | None = None

    @property
    def sender(self) -> str:
        """Sender of the command; messages that it queues have their rights."""
        return OWNER if self.surface.address is None else chat_sender(self.surface.address.platform, self.author.id)


CommandHandler = Callable[[CommandContext], Awaitable[None]]
ChoiceProvider = Callable[[CommandContext], Awaitable[Sequence[tuple[str, str]]]]


async def offer_nothing(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return no completions."""
    return ()


class Command(Struct, frozen=True, kw_only=True):
    """Slash command.

    ``hint`` describes the arguments. ``during_turn`` decides whether it runs during a turn or is refused with the
    advice to stop the turn first. A command that only ``reads`` may be abbreviated in the terminal; all others are
    typed in full. ``offers`` returns completions, each with a description. ``instead_of`` names commands of other
    surfaces that this one replaces: typing one of them suggests this one.
    """

    name: str
    category: Category
    help: str
    run: CommandHandler
    aliases: tuple[str, ...] = ()
    hint: str = ""
    where: Literal["terminal", "chat", "everywhere"] = "everywhere"
    during_turn: Literal["runs", "refused"] = "runs"
    who: Literal["anyone", "owner"] = "anyone"
    reads: bool = False
    offers: ChoiceProvider = offer_nothing
    instead_of: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The name and its aliases."""
        return self.name, *self.aliases

    @property
    def usage(self) -> str:
        """Command line with name and hint."""
        return f"/{self.name} {self.hint}".rstrip()

    @property
    def cli_only(self) -> bool:
        """Return whether it works only in the terminal."""
        return self.where == "terminal"

    @property
    def gateway_only(self) -> bool:
        """Return whether it works only in chats."""
        return self.where == "chat"


def build_command_facts(context: CommandContext, **more: Fact) -> dict[str, Fact]:
    """Return the facts about a command for hooks: chat, session and sender, plus ``more``."""
    active_session, author = context.active_session, context.author
    known = SessionContext(
        source=active_session.request.surface.source,
        user_id=author.id,
        user_name=author.name,
        session_id=active_session.session_id if active_session.is_open else "",
    )
    return {**session_facts(build_surface_context(known, active_session.key, context.surface.address)), **more}


def find_commands(name: str, commands: Sequence[Command]) -> list[Command]:
    """Return the command with this exact name, or all whose names start with it."""
    prefix = name.strip().removeprefix("/").lower()
    if not prefix:
        return []
    exact = [command for command in commands if prefix in command.names]
    return exact or [command for command in commands if any(known.startswith(prefix) for known in command.names)]


def group_help_by_category(commands: Iterable[Command]) -> Mapping[str, Mapping[str, str]]:
    """Return the help of each command by category and ``/name``."""
    found: dict[str, dict[str, str]] = {}
    for command in commands:
        found.setdefault(command.category, {})[f"/{command.name}"] = command.help
    return found


_NEVER_SUGGESTED = {"restart"}  # a typo should not lead to a restart of the gateway


def is_command(text: str) -> bool:
    """Return whether a text is a command: a slash and a word, not a path."""
    name = text.partition(" ")[0]
    return name.startswith("/") and len(name) > 1 and "/" not in name[1:] and "\n" not in name


async def run_command(text: str, context: CommandContext) -> None:
    """Run ``/name arguments``; every `TalariaError` is shown, not raised."""
    name, _, arguments = text.strip().partition(" ")
    found = find_commands(name, context.commands)
    if len(found) != 1:
        context.surface.show(_explain_no_match(name, found, context.commands))
        return
    command = found[0]
    refusal = _refuse_abbreviation(name, command, context) or _find_refusal(command, context)
    if refusal:
        context.surface.show(refusal)
        return
    facts = build_command_facts(context, command=command.name, text=arguments.strip(), owner=context.author.owner)
    context.application.hooks.fire(f"{COMMAND}{command.name}", facts)
    try:
        await command.run(structs.replace(context, arguments=arguments.strip()))
    except TalariaError as error:
        context.surface.show(error.for_owner if context.author.owner else error.public)


def select_usable_commands(commands: Sequence[Command], *, terminal: bool, owner: bool = True) -> tuple[Command, ...]:
    """Return the commands available to a user, in the terminal or in a chat."""
    excluded = "chat" if terminal else "terminal"
    return tuple(one for one in commands if one.where != excluded and (owner or one.who == "anyone"))


def _explain_no_match(name: str, found: Sequence[Command], commands: Sequence[Command]) -> str:
    if found:
        return f"`{name}` could be {', '.join(f'`/{command.name}`' for command in found)}. Type more of it."
    if suggestion := _suggest_replacement(name.removeprefix("/"), commands):
        return suggestion
    names = [known for command in commands for known in command.names if known not in _NEVER_SUGGESTED]
    typed = name.removeprefix("/").lower()
    near = [one for one in names if one.startswith(typed)] or _find_similar(typed, names)
    return f"There is no command `{name}`. " + (f"Did you mean `/{near[0]}`?" if near else "`/help` lists them.")


def _suggest_replacement(name: str, commands: Sequence[Command]) -> str:
    """Return a suggestion if a command here replaces this one of another surface, or an empty string."""
    return next((f"Use `/{one.name}` here." for one in commands if name in one.instead_of), "")


def _refuse_abbreviation(name: str, command: Command, context: CommandContext) -> str:
    """Return the refusal of an abbreviated command; empty if it may run.

    A typo must not change anything, and a project's command must not pass for a built-in one.
    """
    is_whole = name.removeprefix("/").lower() in command.names
    if is_whole or (command.reads and context.screen is not None):
        return ""
    return _explain_no_match(name, (), (command,))


def _find_refusal(command: Command, context: CommandContext) -> str:
    if command not in select_usable_commands(
        context.commands, terminal=context.screen is not None, owner=context.author.owner
    ):
        if command.who == "owner" and not context.author.owner:
            return f"Only the owner of this agent can use `/{command.name}`."
        reason = f"`/{command.name}` works only in {'chats' if command.gateway_only else 'the terminal'}."
        return _suggest_replacement(command.name, context.commands) or reason
    if command.during_turn == "refused" and context.active_session.busy:
        return f"A turn is running. Stop it with `/stop` first, then use `/{command.name}`."
    return ""


def _find_similar(typed: str, names: Sequence[str]) -> list[str]:
    from difflib import get_close_matches  # noqa: PLC0415 (loaded for an unknown command)

    return get_close_matches(typed, names, n=1)

"""Command definition, and the surface interfaces that commands use."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from talaria.commands.application import Application
from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.core.messages import OWNER, Image, chat_sender
from talaria.runtime.active_session import ActiveSession

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

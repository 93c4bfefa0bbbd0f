"""What a command is: its name, its help, where and when and by whom it may be used, and what it does."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol

from msgspec import Struct

from talaria.commands.house import House
from talaria.core.addresses import Address
from talaria.core.ids import SessionId
from talaria.core.messages import Image
from talaria.core.senders import OWNER, chat_sender
from talaria.sessions.seat import Seat

Category = Literal["Session", "Turn", "Model", "Abilities", "Display", "Program", "Your own"]
Progress = Literal["off", "new", "all", "verbose"]


class Display(Struct, frozen=True, omit_defaults=True):
    """What a place shows beside replies: tool calls, what a model thinks, a line below each reply.

    ``streaming`` lets replies grow where people see them, as far as a network can show that.
    """

    progress: Progress = "all"
    reasoning: bool = False
    footer: bool = False
    streaming: bool = True


class Author(Struct, frozen=True):
    """Who uses a command; ``id`` is the one on their network."""

    name: str = ""
    owner: bool = True
    id: str = ""


class Place(Protocol):
    """A front door as commands see it."""

    @property
    def name(self) -> str:
        """What it is called: ``cli``, or the name of a network."""

    @property
    def address(self) -> Address | None:
        """Where it is, if somebody can be reached there."""

    @property
    def display(self) -> Display:
        """What it shows beside replies."""

    def change_display(self, display: Display) -> None:
        """Show this much from now on."""

    def show(self, text: str) -> None:
        """Tell the person something; the text is Markdown."""

    async def choose(self, question: str, choices: Sequence[str]) -> int | None:
        """Let the person choose, and return which; ``None`` when they do not."""


class Screen(Protocol):
    """What only a terminal has."""

    @property
    def theme(self) -> str:
        """The theme in use; assigning chooses another."""

    @property
    def keys(self) -> str:
        """The keyboard shortcuts, as Markdown."""

    def change_theme(self, name: str) -> None:
        """Choose a theme, or raise `NotFound` with the names that there are."""

    def attach(self, picture: Image) -> None:
        """Show this picture to the model with the next message."""

    def fill_in(self, text: str) -> None:
        """Put text into the input line, to be edited and sent."""

    def copy(self, text: str) -> None:
        """Put text into the clipboard."""

    async def paste(self) -> str | Image | None:
        """Return what the clipboard holds, if there is one and it holds something."""

    def hush(self) -> None:
        """Show nothing more of the running turn, and ask nothing for it: it is seen elsewhere."""

    def leave(self) -> None:
        """End the program as soon as this command is done."""


class Service(Protocol):
    """What only a gateway has."""

    async def restart(self, session_id: SessionId, asked: Address) -> float:
        """Begin anew soon, and say there that it is done; returns how many seconds running turns have to end."""


class Errand(Struct, frozen=True, kw_only=True):
    """One use of a command: the words behind its name, and everything it may act on.

    ``screen`` is there for commands that work in the terminal only, ``service`` for those of chats.
    """

    words: str
    seat: Seat
    place: Place
    house: House
    commands: "tuple[Command, ...]"
    author: Author = Author()
    screen: Screen | None = None
    service: Service | None = None

    @property
    def sender(self) -> str:
        """Who types the command: text that it says has their rights."""
        return OWNER if self.place.address is None else chat_sender(self.place.address.platform, self.author.id)


Run = Callable[[Errand], Awaitable[None]]
Offers = Callable[[Errand], Awaitable[Sequence[tuple[str, str]]]]


async def nothing_to_offer(errand: Errand) -> Sequence[tuple[str, str]]:
    """Return no completions."""
    return ()


class Command(Struct, frozen=True, kw_only=True):
    """One slash command.

    ``hint`` shows what may follow the name. ``during_turn`` says what becomes of it while a turn runs: it runs at
    once, or is refused with the advice to stop the turn first. One that only ``reads`` may be abbreviated in the
    terminal; every other is typed in full. ``offers`` returns what may follow, each with a word about it.
    ``instead_of`` names commands of other places that do the same: whoever types one is told of this one.
    """

    name: str
    category: Category
    help: str
    run: Run
    aliases: tuple[str, ...] = ()
    hint: str = ""
    where: Literal["terminal", "chat", "everywhere"] = "everywhere"
    during_turn: Literal["runs", "refused"] = "runs"
    who: Literal["anyone", "owner"] = "anyone"
    reads: bool = False
    offers: Offers = nothing_to_offer
    instead_of: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The name and its aliases."""
        return self.name, *self.aliases

    @property
    def usage(self) -> str:
        """How it is typed."""
        return f"/{self.name} {self.hint}".rstrip()

    @property
    def cli_only(self) -> bool:
        """Whether it works in the terminal and nowhere else."""
        return self.where == "terminal"

    @property
    def gateway_only(self) -> bool:
        """Whether it works in chats and nowhere else."""
        return self.where == "chat"

"""What a chat network is to us: what it can do, what arrives from it, what is sent to it."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.messages import File, Image

Unit = Literal["characters", "utf16", "bytes"]
Markup = Literal["markdown", "plain"]


class Rate(Struct, frozen=True):
    """How often something may be done: so many at once, then so many per second."""

    per_second: float
    burst: int


class Rates(Struct, frozen=True, kw_only=True):
    """How often a network may be called in all, and for one private chat or one of any other kind."""

    network: Rate | None = None
    chat: Rate | None = None
    group: Rate | None = None


class Abilities(Struct, frozen=True, kw_only=True):
    """What a network can do. Delivery adapts to it; adapters never pretend.

    ``text_limit`` is the longest text of one message, counted in ``text_unit``. ``idempotent`` says that sending the
    same key twice posts one message. ``exclusive`` says that one connection at a time may receive for an account.
    ``edit_pace`` is how often a message may be edited at most. ``reactions`` says that messages can be marked,
    ``lists_chats`` that the network tells in which chats we are. ``rates`` is how often messages may be posted or
    edited, as the network documents it.
    """

    text_limit: int
    text_unit: Unit = "characters"
    markup: Markup = "markdown"
    edits: bool = False
    edit_pace: timedelta = timedelta(seconds=1)
    typing: bool = False
    buttons: bool = False
    threads: bool = False
    reactions: bool = False
    lists_chats: bool = False
    idempotent: bool = False
    exclusive: bool = False
    file_limit: int = 0
    rates: Rates = Rates()


class Sender(Struct, frozen=True, omit_defaults=True):
    """Who wrote something."""

    id: str
    name: str = ""


class Attachment(Struct, frozen=True, omit_defaults=True):
    """A file of a message that is still at the network; ``reference`` is what `Platform.fetch` takes.

    ``unique_id`` is the same each time the same sticker is sent, ``hint`` what the network says about it in words.
    """

    reference: str
    kind: Literal["picture", "voice", "document", "sticker"]
    name: str = ""
    media_type: str = ""
    size: int = 0
    unique_id: str = ""
    hint: str = ""


class Incoming(Struct, frozen=True, kw_only=True):
    """Something that a person did on a network.

    ``external_id`` is the network's own id of it: the same one again is a redelivery. ``addressed`` says that it is
    meant for us: a private chat, a mention, a reply to one of our messages. ``button`` is the value of a button that
    was pressed, ``reaction`` an emoji that was put on a message, with ``message_id`` the message that it hangs on.
    ``edited`` says that this is the new text of a message that was there before. ``formerly`` is the id that the chat
    had until now: its conversations move along, and nothing else was said. ``vouched`` says that the sender proved to
    have a secret which the owner gave out for this: whoever has it may speak, unless they are blocked.
    """

    external_id: str
    address: Address
    sender: Sender
    at: datetime
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    message_id: str = ""
    reply_to: str = ""
    chat_name: str = ""
    addressed: bool = True
    button: str = ""
    reaction: str = ""
    edited: bool = False
    formerly: str = ""
    vouched: bool = False


class Button(Struct, frozen=True):
    """A choice below a message."""

    label: str
    value: str


class Content(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message to post: Markdown text, files and choices; ``reply_to`` is the message that it answers."""

    text: str = ""
    files: tuple[File | Image, ...] = ()
    buttons: tuple[Button, ...] = ()
    reply_to: str = ""


class MessageRef(Struct, frozen=True):
    """A message that was posted."""

    address: Address
    message_id: str


class Handfuls(AsyncIterator[Incoming]):
    """What arrives from a network that brings several things at once, and can be told of them one by one.

    Whoever takes only one at a time needs no more than `AsyncIterator`.
    """

    @abstractmethod
    def at_hand(self, most: int) -> Sequence[Incoming]:
        """Return what has arrived behind the one before, without waiting; it counts as received together with that."""


class Platform(Protocol):
    """One account on one chat network. Raises `Unreachable`, `SlowDown`, `Rejected` or `BadCredentials`."""

    name: str
    abilities: Abilities

    def connect(self) -> AbstractAsyncContextManager[AsyncIterator[Incoming]]:
        """Log in, yield what people do, log out when the block ends.

        What was yielded counts as received when the next one is asked for: the network is told no sooner. Where it
        yields `Handfuls`, many people who write at the same moment are heard sooner.
        """

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post one message within the limits; ``key`` makes it one where the network is idempotent."""

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace a posted message. Called only when ``abilities.edits``."""

    async def show_typing(self, to: Address) -> None:
        """Show for some seconds that an answer is being written. Called only when ``abilities.typing``."""

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file into a folder under a safe name and return where it is."""

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Make a thread for a conversation that moves here; ``None`` where that is not possible."""


class MarkingPlatform(Platform, Protocol):
    """A platform whose ``abilities.reactions`` say that messages can be marked."""

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Mark a message in place of the mark we put there before; empty takes it away."""


class KnownChat(Struct, frozen=True):
    """A chat in which we are, and what it is called."""

    address: Address
    name: str


class ListingPlatform(Platform, Protocol):
    """A platform whose ``abilities.lists_chats`` say that it knows in which chats we are."""

    async def chats(self) -> Sequence[KnownChat]:
        """Return those chats; called while it is connected."""


class PlatformAccount(Struct, frozen=True, kw_only=True):
    """What an adapter is made of: its options and secrets, a store for small things, a folder, the commands of a menu.

    What the adapter opens it leaves to ``closing``, which ends with the gateway. ``admits`` tells whether somebody may
    speak at a place, by the settings as they are now: for networks on which one has to be let in by us first.

    An adapter is found by its name among the entry points ``talaria.platforms``: a function of this that returns a
    `Platform`.
    """

    name: str
    options: Mapping[str, str]
    secret: Callable[[str], str | None]
    store: Store
    folder: Path
    closing: AsyncExitStack
    commands: Sequence[tuple[str, str]] = ()
    admits: Callable[[Address, Sender], Awaitable[bool]] | None = None


class KnownPlatforms(dict[str, bool]):
    """The chat networks that are known, and whether each is configured.

    ``forms`` says how slash commands are typed where that is not ``/name``.
    """

    def __init__(self, configured: Mapping[str, bool], forms: Mapping[str, str]) -> None:
        super().__init__(configured)
        self._forms = forms

    def typed_command(self, platform: str, name: str) -> str:
        """Return how a slash command is typed on a network: some have one command for all of them."""
        return self._forms.get(platform, "/{name}").format(name=name)

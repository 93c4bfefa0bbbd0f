"""The platform contract: a chat network's capabilities, incoming updates and outgoing messages."""

from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct

from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.core.messages import File, Image

Unit = Literal["characters", "utf16", "bytes"]


class Rate(Struct, frozen=True):
    """A rate limit: ``burst`` operations at once, then so many per second."""

    per_second: float
    burst: int


class Rates(Struct, frozen=True, kw_only=True):
    """Rate limits of a network: in total, per private chat, and per other chat."""

    network: Rate | None = None
    chat: Rate | None = None
    group: Rate | None = None


class PlatformCapabilities(Struct, frozen=True, kw_only=True):
    """The capabilities of a network. Delivery adapts to them; adapters never pretend.

    ``text_limit`` is the longest text of one message, counted in ``text_unit``. ``idempotent`` means that sending the
    same key twice posts one message. ``exclusive`` means that only one connection at a time may receive for an account.
    ``backlog`` means that what was written while we weren't connected arrives later. ``replies`` means that a message
    shows which one it answers, ``reactions`` that messages can be marked, ``lists_chats`` that the network lists the
    chats we are in. ``threaded`` means that every message is in a thread, and one that is sent to the chat itself
    starts another. ``servers`` means that groups belong to a server or something alike, which updates name.
    ``progress`` means that messages about a running turn are welcome. ``edit_pace`` is the shortest time between edits
    of a message. ``rates`` are the documented limits for posting and editing.
    """

    text_limit: int
    text_unit: Unit = "characters"
    replies: bool = True
    edits: bool = False
    edit_pace: timedelta = timedelta(seconds=1)
    typing: bool = False
    buttons: bool = False
    threads: bool = False
    threaded: bool = False
    progress: bool = True
    reactions: bool = False
    lists_chats: bool = False
    servers: bool = False
    idempotent: bool = False
    exclusive: bool = False
    backlog: bool = True
    file_limit: int = 0
    rates: Rates = Rates()


class Sender(Struct, frozen=True, omit_defaults=True):
    """The author of an update; ``aliases`` are other ids of the same person, of which the network vouches."""

    id: str
    name: str = ""
    aliases: tuple[str, ...] = ()


class Attachment(Struct, frozen=True, omit_defaults=True):
    """A file of a message, still on the network; ``reference`` is the argument for `Platform.fetch`.

    ``unique_id`` is the same each time the same sticker is sent, ``hint`` is the network's description of it.
    """

    reference: str
    kind: Literal["picture", "voice", "document", "sticker"]
    name: str = ""
    media_type: str = ""
    size: int = 0
    unique_id: str = ""
    hint: str = ""


class Incoming(Struct, frozen=True, kw_only=True):
    """An update from a network.

    ``external_id`` is the network's own id; the same id again is a redelivery. ``addressed`` means that it is meant for
    us: a private chat, a mention, a reply to one of our messages. ``button`` is the value of a pressed button,
    ``reaction`` an emoji put on the message ``message_id``. ``edited`` means that this is the new text of an earlier
    message. ``formerly`` is the previous id of a migrated chat: its sessions move along, and the update has no other
    content. ``vouched`` means that the sender proved to have a secret which the owner gave out for this: they may speak
    unless blocked. ``server`` is the id of the chat's server, on networks that have ``servers``;
    all updates of a chat name the same one.
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
    server: str = ""


class Button(Struct, frozen=True):
    """A choice below a message."""

    label: str
    value: str


class Content(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message to post: Markdown text, files and choices; ``reply_to`` is the message it answers."""

    text: str = ""
    files: tuple[File | Image, ...] = ()
    buttons: tuple[Button, ...] = ()
    reply_to: str = ""


class MessageRef(Struct, frozen=True):
    """A reference to a posted message."""

    address: Address
    message_id: str


class BatchedUpdates(AsyncIterator[Incoming]):
    """Updates from a network that delivers several at once and accepts acknowledgements one by one.

    Callers that take one update at a time need only `AsyncIterator`.
    """

    @abstractmethod
    def at_hand(self, most: int) -> Sequence[Incoming]:
        """Return the updates that have arrived after the last one, without waiting; they are acknowledged with it."""


class Platform(Protocol):
    """One account on one chat network. Raises `Unreachable`, `SlowDown`, `Rejected` or `BadCredentials`."""

    name: str
    abilities: PlatformCapabilities

    def connect(self) -> AbstractAsyncContextManager[AsyncIterator[Incoming]]:
        """Log in, yield updates, log out when the block ends.

        An update is acknowledged to the network when the next one is requested, not sooner. With `BatchedUpdates`,
        simultaneous updates are received sooner.
        """

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post one message within the limits; ``key`` prevents duplicates if the network is idempotent."""

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace a posted message. Called only when ``abilities.edits``."""

    async def show_typing(self, to: Address) -> None:
        """Show a typing indicator for some seconds. Called only when ``abilities.typing``."""

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file into a folder under a safe name and return its path."""

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Create a thread for a session that is handed off to this chat; ``None`` if that is impossible."""


class PlatformDefaults:
    """Refusals and defaults that an adapter inherits for everything its network lacks; see `Platform`."""

    name: str

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Refuse: nothing can be edited."""
        raise Rejected(f"messages on {self.name} can't be edited")

    async def show_typing(self, to: Address) -> None:
        """Do nothing: there is no indicator."""

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Refuse: there are no files."""
        raise Rejected(f"{self.name} has no files")

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Return ``None``: there are no threads."""
        return None


class MarkingPlatform(Platform, Protocol):
    """A platform with ``abilities.reactions``: messages can be marked."""

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Replace our mark on a message; an empty one removes it."""


class KnownChat(Struct, frozen=True):
    """A chat we are in, and its name."""

    address: Address
    name: str


class ListingPlatform(Platform, Protocol):
    """A platform with ``abilities.lists_chats``: it lists the chats we are in."""

    async def chats(self) -> Sequence[KnownChat]:
        """Return those chats; called while connected."""


class PlatformAccount(Struct, frozen=True, kw_only=True):
    """Everything an adapter is created from: options, secrets, a small store, a folder, the commands of a menu.

    Resources that the adapter opens are registered with ``closing``, which ends with the gateway. ``may_join`` returns
    whether a person may speak in a chat under the current settings, for networks where we have to accept invitations.

    ``network`` is the network of an account that has a name of its own; ``secret`` finds the secrets of this account.

    An adapter is found by the name of its network among the entry points ``talaria.platforms``: a function that takes
    an account and returns a `Platform`.
    """

    name: str
    options: Mapping[str, str]
    secret: Callable[[str], str | None]
    store: Store
    folder: Path
    closing: AsyncExitStack
    commands: Sequence[tuple[str, str]] = ()
    may_join: Callable[[Address, Sender], Awaitable[bool]] | None = None
    network: str = ""


class KnownPlatforms(dict[str, bool]):
    """The known chat networks, and whether each is configured.

    ``forms`` says how slash commands are typed where that is not ``/name``.
    """

    def __init__(self, configured: Mapping[str, bool], forms: Mapping[str, str]) -> None:
        super().__init__(configured)
        self._forms = forms

    def format_command(self, platform: str, name: str) -> str:
        """Return how a slash command is typed on a network; some have one command for all of them."""
        return self._forms.get(platform, "/{name}").format(name=name)

"""Wire types of Discord, as far as we read them."""

from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

_T = TypeVar("_T")

DIRECT = 1
ANNOUNCEMENTS = 5
FORUMS = frozenset({15, 16})
THREADS = frozenset({10, 11, 12})


class User(Struct, frozen=True):
    """A user."""

    id: str
    username: str = ""
    global_name: str | None = None
    bot: bool = False


class Member(Struct, frozen=True):
    """A member of a server."""

    nick: str | None = None
    user: User | None = None


class Channel(Struct, frozen=True):
    """A channel: a private chat, a channel, a thread, a forum."""

    id: str
    type: int = 0
    name: str | None = None
    guild_id: str = ""
    parent_id: str | None = None
    owner_id: str = ""

    @property
    def is_thread(self) -> bool:
        """Return whether it is a thread, which includes a post in a forum."""
        return self.type in THREADS


class Upload(Struct, frozen=True):
    """A file of a message."""

    id: str
    filename: str
    url: str
    size: int = 0
    content_type: str = ""
    waveform: str = ""


class Sticker(Struct, frozen=True):
    """A sticker of a message."""

    id: str
    name: str = ""
    format_type: int = 1


class Reference(Struct, frozen=True):
    """A reference to the message that another answers (type 0) or forwards (type 1)."""

    message_id: str = ""
    channel_id: str = ""
    type: int = 0


class ReferencedMessage(Struct, frozen=True):
    """A message that is answered."""

    author: User


class ForwardedMessage(Struct, frozen=True):
    """The content of a forwarded message."""

    content: str = ""
    attachments: tuple[Upload, ...] = ()


class Snapshot(Struct, frozen=True):
    """A snapshot of a forwarded message."""

    message: ForwardedMessage


class PollText(Struct, frozen=True):
    """The text of a question or an answer."""

    text: str = ""


class Poll(Struct, frozen=True):
    """A poll."""

    question: PollText = PollText()


class Emoji(Struct, frozen=True):
    """An emoji; one of a server has an id."""

    id: str | None = None
    name: str | None = None


class ReactionCount(Struct, frozen=True):
    """The reactions of one kind on a message."""

    emoji: Emoji
    me: bool = False


class Message(Struct, frozen=True):
    """A message."""

    id: str
    channel_id: str
    author: User
    timestamp: datetime
    content: str = ""
    type: int = 0
    guild_id: str = ""
    webhook_id: str = ""
    edited_timestamp: datetime | None = None
    member: Member | None = None
    mentions: tuple[User, ...] = ()
    mention_roles: tuple[str, ...] = ()
    attachments: tuple[Upload, ...] = ()
    sticker_items: tuple[Sticker, ...] = ()
    message_reference: Reference | None = None
    referenced_message: ReferencedMessage | None = None
    message_snapshots: tuple[Snapshot, ...] = ()
    poll: Poll | None = None
    reactions: tuple[ReactionCount, ...] = ()


class Reaction(Struct, frozen=True):
    """A reaction to a message."""

    user_id: str
    channel_id: str
    message_id: str
    emoji: Emoji
    guild_id: str = ""
    message_author_id: str = ""
    member: Member | None = None


class CommandOption(Struct, frozen=True):
    """The argument of a command."""

    name: str
    value: Any = None


class InteractionData(Struct, frozen=True):
    """A command, or a button or a menu below a message."""

    name: str = ""
    options: tuple[CommandOption, ...] = ()
    custom_id: str = ""
    values: tuple[str, ...] = ()


class ComponentMessage(Struct, frozen=True):
    """The message with the button."""

    id: str


class Interaction(Struct, frozen=True):
    """A command (type 2), or a button or a menu (type 3), that was used."""

    id: str
    application_id: str
    type: int
    token: str
    data: InteractionData = InteractionData()
    channel: Channel | None = None
    channel_id: str = ""
    guild_id: str = ""
    member: Member | None = None
    user: User | None = None
    message: ComponentMessage | None = None


class RoleTags(Struct, frozen=True):
    """The purpose of a role."""

    bot_id: str = ""


class Role(Struct, frozen=True):
    """A role; that of a bot carries its id."""

    id: str
    tags: RoleTags = RoleTags()


class Guild(Struct, frozen=True):
    """A server that has become visible."""

    id: str
    channels: tuple[Channel, ...] = ()
    threads: tuple[Channel, ...] = ()


class GatewayFrame(Struct, frozen=True):
    """A frame of the gateway."""

    op: int
    d: msgspec.Raw = msgspec.Raw(b"null")
    s: int | None = None
    t: str | None = None


def parse(value: object, kind: type[_T]) -> _T:
    """Return a response as its type. Raises `msgspec.ValidationError`."""
    return msgspec.convert(value, kind)

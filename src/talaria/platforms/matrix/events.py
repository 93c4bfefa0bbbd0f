"""Wire types of room events, as far as we read them."""

from typing import Any

import msgspec
from msgspec import Struct, field

BUTTONS = "io.talaria.buttons"


class Unsigned(Struct, frozen=True):
    """Additions by the homeserver."""

    prev_content: dict[str, Any] = {}


class RoomEvent(Struct, frozen=True, kw_only=True):
    """An event in a room; ``content`` is whatever its sender wrote."""

    type: str
    event_id: str
    sender: str
    origin_server_ts: int = 0
    state_key: str | None = None
    content: dict[str, Any] = {}
    unsigned: Unsigned = Unsigned()


class InReplyTo(Struct, frozen=True):
    """The message being answered."""

    event_id: str = ""


class Relation(Struct, frozen=True):
    """The relation of an event to another: an edit, a reaction, a thread, an answer."""

    rel_type: str = ""
    event_id: str = ""
    key: str = ""
    is_falling_back: bool = False
    in_reply_to: InReplyTo = field(name="m.in_reply_to", default=InReplyTo())

    @property
    def thread(self) -> str:
        """Return the root event of the thread."""
        return self.event_id if self.rel_type == "m.thread" else ""

    @property
    def answered(self) -> str:
        """Return the message being answered, without the fallback reference for clients without threads."""
        return "" if self.thread and self.is_falling_back else self.in_reply_to.event_id


class Mentions(Struct, frozen=True):
    """The people mentioned."""

    user_ids: tuple[str, ...] = ()


class FileInfo(Struct, frozen=True):
    """Properties of a file."""

    mimetype: str = ""
    size: int = 0


class FileKey(Struct, frozen=True):
    """A key as JSON Web Key; ``k`` is the key itself."""

    k: str = ""


class EncryptedFile(Struct, frozen=True):
    """The URL and key of an encrypted file."""

    url: str = ""
    key: FileKey = FileKey()
    iv: str = ""
    hashes: dict[str, str] = {}


class ButtonNote(Struct, frozen=True):
    """A button of our message: the reaction that stands for it, and its value."""

    label: str
    value: str


class MessageBody(Struct, frozen=True, kw_only=True):
    """The content of a message, of a sticker or of a reaction."""

    msgtype: str = ""
    body: str = ""
    formatted_body: str = ""
    filename: str = ""
    url: str = ""
    geo_uri: str = ""
    info: FileInfo = FileInfo()
    file: EncryptedFile | None = None
    relates_to: Relation = field(name="m.relates_to", default=Relation())
    mentions: Mentions | None = field(name="m.mentions", default=None)
    new_content: dict[str, Any] | None = field(name="m.new_content", default=None)
    voice: dict[str, Any] | None = field(name="org.matrix.msc3245.voice", default=None)
    buttons: tuple[ButtonNote, ...] = field(name=BUTTONS, default=())


def read_event(source: object) -> RoomEvent | None:
    """Return an event, or ``None`` for an invalid one."""
    try:
        return msgspec.convert(source, RoomEvent)
    except msgspec.ValidationError:
        return None


def read_message_body(content: object) -> MessageBody | None:
    """Return the content of an event, or ``None`` if it violates the specification."""
    try:
        return msgspec.convert(content, MessageBody)
    except msgspec.ValidationError:
        return None

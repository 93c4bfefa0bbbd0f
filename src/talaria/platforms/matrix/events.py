"""Events of a room as they come over the wire, as far as they concern us."""

from typing import Any

import msgspec
from msgspec import Struct, field

BUTTONS = "io.talaria.buttons"


class Unsigned(Struct, frozen=True):
    """What the homeserver adds for us."""

    prev_content: dict[str, Any] = {}


class RoomEvent(Struct, frozen=True, kw_only=True):
    """Something that happened in a room; ``content`` is whatever its sender wrote there."""

    type: str
    event_id: str
    sender: str
    origin_server_ts: int = 0
    state_key: str | None = None
    content: dict[str, Any] = {}
    unsigned: Unsigned = Unsigned()


class InReplyTo(Struct, frozen=True):
    """The message that is answered."""

    event_id: str = ""


class Relation(Struct, frozen=True):
    """How an event relates to another: as an edit, a reaction, a part of a thread, an answer."""

    rel_type: str = ""
    event_id: str = ""
    key: str = ""
    is_falling_back: bool = False
    in_reply_to: InReplyTo = field(name="m.in_reply_to", default=InReplyTo())

    @property
    def thread(self) -> str:
        """The first event of the thread that this belongs to."""
        return self.event_id if self.rel_type == "m.thread" else ""

    @property
    def answered(self) -> str:
        """The message that this answers; in threads old clients are shown one that is not meant."""
        return "" if self.thread and self.is_falling_back else self.in_reply_to.event_id


class Mentions(Struct, frozen=True):
    """Who is meant."""

    user_ids: tuple[str, ...] = ()


class FileInfo(Struct, frozen=True):
    """What is known of a file."""

    mimetype: str = ""
    size: int = 0


class FileKey(Struct, frozen=True):
    """A key as JSON Web Key; ``k`` is the key itself."""

    k: str = ""


class EncryptedFile(Struct, frozen=True):
    """Where an encrypted file is and how it is read."""

    url: str = ""
    key: FileKey = FileKey()
    iv: str = ""
    hashes: dict[str, str] = {}


class ButtonNote(Struct, frozen=True):
    """A button of a message of ours: the reaction that stands for it, and its value."""

    label: str
    value: str


class Spoken(Struct, frozen=True, kw_only=True):
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
    """Return an event, or ``None`` for what is none."""
    try:
        return msgspec.convert(source, RoomEvent)
    except msgspec.ValidationError:
        return None


def read_spoken(content: object) -> Spoken | None:
    """Return the content of an event, or ``None`` where it is not what the specification says."""
    try:
        return msgspec.convert(content, Spoken)
    except msgspec.ValidationError:
        return None

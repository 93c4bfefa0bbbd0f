"""Wire types of room events, as far as we read them."""

from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct, field

BUTTONS = "io.talaria.buttons"
_T = TypeVar("_T")


class Unsigned(Struct, frozen=True):
    """Additions by the homeserver."""

    prev_content: dict[str, Any] = {}


class StrippedEvent(Struct, frozen=True, kw_only=True):
    """An event as shown to those who aren't in its room; ``content`` is whatever its sender wrote."""

    type: str
    sender: str
    state_key: str | None = None
    content: dict[str, Any] = {}


class RoomEvent(StrippedEvent, frozen=True, kw_only=True):
    """An event in a room."""

    event_id: str
    origin_server_ts: int = 0
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


class EventList(Struct, frozen=True):
    """Events that are decoded one by one, so that an invalid one affects only itself."""

    events: list[Raw] = []


class Timeline(EventList, frozen=True):
    """The latest events of a room; if ``limited``, those before ``prev_batch`` are missing."""

    limited: bool = False
    prev_batch: str | None = None


class JoinedRoom(Struct, frozen=True):
    """The changes in a room; ``state`` was before the timeline."""

    state: EventList = EventList()
    timeline: Timeline = Timeline()


class InvitedRoom(Struct, frozen=True):
    """A room that we are invited to."""

    invite_state: EventList = EventList()


class SyncedRooms(Struct, frozen=True):
    """The rooms in which something happened."""

    join: dict[str, JoinedRoom] = {}
    invite: dict[str, InvitedRoom] = {}
    leave: dict[str, Raw] = {}


class SyncAnswer(Struct, frozen=True):
    """The answer to a sync."""

    next_batch: str
    rooms: SyncedRooms = SyncedRooms()


class EventPage(Struct, frozen=True):
    """A page of events; the next one starts at ``end``."""

    chunk: list[Raw] = []
    end: str | None = None


def read_event(source: object) -> RoomEvent | None:
    """Return an event, as JSON or decoded, or ``None`` for an invalid one."""
    return _read(source, RoomEvent)


def read_stripped_event(source: object) -> StrippedEvent | None:
    """Return an event of an invitation, or ``None`` for an invalid one."""
    return _read(source, StrippedEvent)


def read_message_body(content: object) -> MessageBody | None:
    """Return the content of an event, or ``None`` if it violates the specification."""
    return _read(content, MessageBody)


def _read(source: object, kind: type[_T]) -> _T | None:
    try:
        if isinstance(source, Raw):
            return msgspec.json.decode(source, type=kind)
        return msgspec.convert(source, kind)
    except msgspec.MsgspecError:
        return None

"""From events of a room to what a person did there."""

import re
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Attachment, Incoming, Sender
from talaria.core.addresses import Address, ChatType
from talaria.platforms.matrix.events import RoomEvent, Spoken, read_spoken
from talaria.platforms.matrix.settings import GroupMode

_KINDS = {"m.image": "picture", "m.audio": "document", "m.video": "document", "m.file": "document"}
_LATEST = 253_402_300_799_000  # the last millisecond of the year 9999
_QUOTE = re.compile(r"\A> (?:\* )?<@[^>\n]+>[^\n]*\n(?:>[^\n]*\n)*\n?")


class Me(Struct, frozen=True):
    """Who we are there: our id, and the names that people call us by."""

    platform: str
    user_id: str
    names: tuple[str, ...] = ()
    group_mode: GroupMode = "reply"


class Room(Struct, frozen=True):
    """A room as we know it; ``people`` are the names of its members by their ids."""

    room_id: str
    members: int = 2
    name: str = ""
    people: dict[str, str] = {}

    @property
    def private(self) -> bool:
        """Whether nobody else is there."""
        return self.members <= 2


def related_event(event: RoomEvent, room: Room, me: Me) -> str:
    """Return the id of the event that has to be known to understand this one; empty where none has to."""
    if event.sender == me.user_id or (said := read_spoken(event.content)) is None:
        return ""
    relation = said.relates_to
    if relation.rel_type in ("m.replace", "m.annotation"):
        return relation.event_id
    if room.private or me.group_mode != "reply" or event.type not in ("m.room.message", "m.sticker"):
        return ""
    return "" if _is_named(said, me) else relation.answered or relation.thread


def read_incoming(event: RoomEvent, room: Room, me: Me, related: RoomEvent | None = None) -> Incoming | None:
    """Return what a person did; ``None`` for what is not meant for anybody's eyes or comes from ourselves or a bot."""
    said = read_spoken(event.content)
    if event.sender == me.user_id or event.state_key is not None or said is None:
        return None
    if event.type == "m.reaction":
        return _marked(event, said, room, me, related)
    if event.type == "m.sticker":
        return _message(event, said, room, me, related)
    if event.type != "m.room.message" or not said.msgtype or said.msgtype == "m.notice":
        return None
    if said.relates_to.rel_type == "m.replace":
        return _edited(event, said, room, me, related)
    return _message(event, said, room, me, related)


def own_marks(reactions: list[RoomEvent], target: RoomEvent, user_id: str) -> list[tuple[str, str]]:
    """Return our reactions to an event, each with its key, except for those that show its buttons."""
    labels = button_labels(target)
    return [(event_id, key) for event_id, key in _ours(reactions, user_id) if key not in labels]


def button_marks(reactions: list[RoomEvent], target: RoomEvent, user_id: str) -> list[str]:
    """Return our reactions to an event that show its buttons."""
    labels = button_labels(target)
    return [event_id for event_id, key in _ours(reactions, user_id) if key in labels]


def button_labels(event: RoomEvent) -> set[str]:
    """Return what the buttons of a message of ours are called."""
    return {one.label for one in (read_spoken(event.content) or Spoken()).buttons}


def _ours(reactions: list[RoomEvent], user_id: str) -> list[tuple[str, str]]:
    ours = [(one.event_id, read_spoken(one.content) or Spoken()) for one in reactions if one.sender == user_id]
    return [(event_id, said.relates_to.key) for event_id, said in ours if said.relates_to.key]


def since_invitation(events: list[RoomEvent], me: Me) -> list[RoomEvent]:
    """Return what happened since we were invited, or came by ourselves: what was said before is not for us."""
    first = 0
    for place, event in enumerate(events):
        if event.type != "m.room.member" or event.state_key != me.user_id:
            continue
        membership, before = event.content.get("membership"), event.unsigned.prev_content.get("membership")
        # A join behind a join is a new name or picture of ours, one behind an invitation has that before it.
        if membership == "invite" or (membership == "join" and before not in ("join", "invite")):
            first = place + 1
    return events[first:]


def _message(event: RoomEvent, said: Spoken, room: Room, me: Me, related: RoomEvent | None) -> Incoming:
    relation = said.relates_to
    return Incoming(
        external_id=event.event_id,
        address=address_of(room, me, relation.thread),
        sender=Sender(event.sender, room.people.get(event.sender, "")),
        at=_time(event),
        text=_text(event, said, room, me),
        attachments=_attachments(event, said),
        message_id=event.event_id,
        reply_to=relation.answered,
        chat_name=room.name,
        addressed=_is_addressed(said, room, me, related),
    )


def _edited(event: RoomEvent, said: Spoken, room: Room, me: Me, before: RoomEvent | None) -> Incoming | None:
    """Return the new text of a message; only its author may change it."""
    now = read_spoken(said.new_content)
    if now is None or before is None or before.sender != event.sender or now.msgtype == "m.notice":
        return None
    then = read_spoken(before.content) or Spoken()
    relation = then.relates_to
    whole = msgspec.structs.replace(now, relates_to=relation, mentions=said.mentions or now.mentions)
    changed = _message(event, whole, room, me, None)
    return msgspec.structs.replace(
        changed, message_id=before.event_id, edited=True, addressed=changed.addressed or _is_named(then, me)
    )


def _marked(event: RoomEvent, said: Spoken, room: Room, me: Me, target: RoomEvent | None) -> Incoming | None:
    """Return the mark that was put on a message, or the button that it stands for."""
    key = said.relates_to.key
    if target is None or not key or said.relates_to.rel_type != "m.annotation":
        return None
    there = read_spoken(target.content) or Spoken()
    ours = target.sender == me.user_id
    button = next((one.value for one in there.buttons if ours and one.label == key), "")
    return Incoming(
        external_id=event.event_id,
        address=address_of(room, me, there.relates_to.thread),
        sender=Sender(event.sender, room.people.get(event.sender, "")),
        at=_time(event),
        message_id=target.event_id,
        chat_name=room.name,
        addressed=ours or room.private or me.group_mode == "free",
        button=button,
        reaction="" if button else key,
    )


def address_of(room: Room, me: Me, thread: str = "") -> Address:
    """Return where a room is, or a thread in it."""
    group: ChatType = "thread" if thread else "group"
    return Address(me.platform, room.room_id, "private" if room.private else group, thread)


def _time(event: RoomEvent) -> datetime:
    return datetime.fromtimestamp(min(max(event.origin_server_ts, 0), _LATEST) / 1000, UTC)


def _is_addressed(said: Spoken, room: Room, me: Me, related: RoomEvent | None) -> bool:
    if room.private or me.group_mode == "free" or _is_named(said, me):
        return True
    return me.group_mode == "reply" and related is not None and related.sender == me.user_id


def _is_named(said: Spoken, me: Me) -> bool:
    if said.mentions is not None:
        return me.user_id in said.mentions.user_ids
    # Clients of before Matrix 1.7 do not say whom they mean: they link to the person, or write the whole id.
    link = re.escape(f"https://matrix.to/#/{me.user_id}") + r"(?=[\"'?])"
    whole = r"(?<![\w@])" + re.escape(me.user_id) + r"(?![\w:])"
    return bool(re.search(link, said.formatted_body.replace("%40", "@")) or re.search(whole, said.body))


def _text(event: RoomEvent, said: Spoken, room: Room, me: Me) -> str:
    if event.type == "m.sticker":
        return ""
    if said.msgtype in _KINDS:
        return said.body if said.filename and said.filename != said.body else ""
    text = _QUOTE.sub("", said.body, count=1) if said.relates_to.answered else said.body
    if said.msgtype == "m.emote":
        return f"* {room.people.get(event.sender) or event.sender} {text}"
    if said.geo_uri and said.msgtype == "m.location":
        return f"{text}\n{said.geo_uri}"
    return _without_salutation(text, me) if _is_named(said, me) else text


def _without_salutation(text: str, me: Me) -> str:
    """Take away the name that a message begins with, so that a command behind it is seen as one."""
    local = me.user_id[1:].partition(":")[0]
    names = "|".join(
        re.escape(name) for name in sorted({me.user_id[1:], *me.names, local}, key=len, reverse=True) if name
    )
    found = re.match(rf"\s*@?(?:{names})(?:[:,]\s*|\s+(?=/))(?=\S)", text, re.IGNORECASE)
    return text[found.end() :] if found else text


def _attachments(event: RoomEvent, said: Spoken) -> tuple[Attachment, ...]:
    kind = "sticker" if event.type == "m.sticker" else _KINDS.get(said.msgtype, "")
    if kind == "document" and said.msgtype == "m.audio" and said.voice is not None:
        kind = "voice"
    reference = said.url if said.file is None else msgspec.json.encode(said.file).decode()
    if not kind or not reference:
        return ()
    name = said.filename or said.body
    media_type, size = said.info.mimetype, max(said.info.size, 0)
    found = {"reference": reference, "kind": kind, "name": name, "media_type": media_type, "size": size}
    if kind == "sticker":
        found |= {"unique_id": said.url, "hint": said.body}
    return (msgspec.convert(found, Attachment),)

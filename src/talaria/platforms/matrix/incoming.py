"""Translate room events into updates."""

import re
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Attachment, Incoming, Sender
from talaria.core.addresses import Address, ChatType
from talaria.platforms.matrix.events import MessageBody, RoomEvent, read_message_body
from talaria.platforms.matrix.settings import GroupMode

_KINDS = {"m.image": "picture", "m.audio": "document", "m.video": "document", "m.file": "document"}
_MAX_TIMESTAMP = 253_402_300_799_000  # the last millisecond of the year 9999
_QUOTE = re.compile(r"\A> (?:\* )?<@[^>\n]+>[^\n]*\n(?:>[^\n]*\n)*\n?")


class BotIdentity(Struct, frozen=True):
    """Our identity: id, and the names that people call us by."""

    platform: str
    user_id: str
    names: tuple[str, ...] = ()
    group_mode: GroupMode = "reply"


class RoomInfo(Struct, frozen=True):
    """The known state of a room; ``people`` are the names of its members by id."""

    room_id: str
    members: int = 2
    name: str = ""
    people: dict[str, str] = {}

    @property
    def private(self) -> bool:
        """Return whether only one other person is there."""
        return self.members <= 2


def related_event(event: RoomEvent, room: RoomInfo, identity: BotIdentity) -> str:
    """Return the id of the event needed to understand this one; empty if none is."""
    if event.sender == identity.user_id or (body_fields := read_message_body(event.content)) is None:
        return ""
    relation = body_fields.relates_to
    if relation.rel_type in ("m.replace", "m.annotation"):
        return relation.event_id
    if room.private or identity.group_mode != "reply" or event.type not in ("m.room.message", "m.sticker"):
        return ""
    return "" if _mentions_us(body_fields, identity) else relation.answered or relation.thread


def read_incoming(
    event: RoomEvent, room: RoomInfo, identity: BotIdentity, related: RoomEvent | None = None
) -> Incoming | None:
    """Return the update; ``None`` for events without content, from ourselves or from a bot."""
    body_fields = read_message_body(event.content)
    if event.sender == identity.user_id or event.state_key is not None or body_fields is None:
        return None
    if event.type == "m.reaction":
        return _read_reaction(event, body_fields, room, identity, related)
    if event.type == "m.sticker":
        return _read_message(event, body_fields, room, identity, related)
    if event.type != "m.room.message" or not body_fields.msgtype or body_fields.msgtype == "m.notice":
        return None
    if body_fields.relates_to.rel_type == "m.replace":
        return _read_edit(event, body_fields, room, identity, related)
    return _read_message(event, body_fields, room, identity, related)


def own_reactions(reactions: list[RoomEvent], target: RoomEvent, user_id: str) -> list[tuple[str, str]]:
    """Return our reactions to an event by key, except those that show its buttons."""
    labels = button_labels(target)
    return [(event_id, key) for event_id, key in _select_reactions(reactions, user_id) if key not in labels]


def button_reactions(reactions: list[RoomEvent], target: RoomEvent, user_id: str) -> list[str]:
    """Return our reactions to an event that show its buttons."""
    labels = button_labels(target)
    return [event_id for event_id, key in _select_reactions(reactions, user_id) if key in labels]


def button_labels(event: RoomEvent) -> set[str]:
    """Return the labels of the buttons of our message."""
    return {one.label for one in (read_message_body(event.content) or MessageBody()).buttons}


def _select_reactions(reactions: list[RoomEvent], user_id: str) -> list[tuple[str, str]]:
    ours = [
        (one.event_id, read_message_body(one.content) or MessageBody()) for one in reactions if one.sender == user_id
    ]
    return [(event_id, body_fields.relates_to.key) for event_id, body_fields in ours if body_fields.relates_to.key]


def since_invitation(events: list[RoomEvent], identity: BotIdentity) -> list[RoomEvent]:
    """Return the events since we were invited or joined: earlier ones are not for us."""
    first = 0
    for index, event in enumerate(events):
        if event.type != "m.room.member" or event.state_key != identity.user_id:
            continue
        membership, before = event.content.get("membership"), event.unsigned.prev_content.get("membership")
        # A join after a join is a new name or avatar; one after an invitation has that before it.
        if membership == "invite" or (membership == "join" and before not in ("join", "invite")):
            first = index + 1
    return events[first:]


def _read_message(
    event: RoomEvent, body_fields: MessageBody, room: RoomInfo, identity: BotIdentity, related: RoomEvent | None
) -> Incoming:
    relation = body_fields.relates_to
    return Incoming(
        external_id=event.event_id,
        address=address_of(room, identity, relation.thread),
        sender=Sender(event.sender, room.people.get(event.sender, "")),
        at=_read_event_time(event),
        text=_render_text(event, body_fields, room, identity),
        attachments=_list_attachments(event, body_fields),
        message_id=event.event_id,
        reply_to=relation.answered,
        chat_name=room.name,
        addressed=_is_addressed(body_fields, room, identity, related),
    )


def _read_edit(
    event: RoomEvent, body_fields: MessageBody, room: RoomInfo, identity: BotIdentity, before: RoomEvent | None
) -> Incoming | None:
    """Return the new text of a message; only its author may change it."""
    new_body = read_message_body(body_fields.new_content)
    if new_body is None or before is None or before.sender != event.sender or new_body.msgtype == "m.notice":
        return None
    old_body = read_message_body(before.content) or MessageBody()
    relation = old_body.relates_to
    whole = msgspec.structs.replace(new_body, relates_to=relation, mentions=body_fields.mentions or new_body.mentions)
    changed = _read_message(event, whole, room, identity, None)
    return msgspec.structs.replace(
        changed,
        message_id=before.event_id,
        edited=True,
        addressed=changed.addressed or _mentions_us(old_body, identity),
    )


def _read_reaction(
    event: RoomEvent, body_fields: MessageBody, room: RoomInfo, identity: BotIdentity, target: RoomEvent | None
) -> Incoming | None:
    """Return the reaction to a message, or the button that it stands for."""
    key = body_fields.relates_to.key
    if target is None or not key or body_fields.relates_to.rel_type != "m.annotation":
        return None
    target_body = read_message_body(target.content) or MessageBody()
    ours = target.sender == identity.user_id
    button = next((one.value for one in target_body.buttons if ours and one.label == key), "")
    return Incoming(
        external_id=event.event_id,
        address=address_of(room, identity, target_body.relates_to.thread),
        sender=Sender(event.sender, room.people.get(event.sender, "")),
        at=_read_event_time(event),
        message_id=target.event_id,
        chat_name=room.name,
        addressed=ours or room.private or identity.group_mode == "free",
        button=button,
        reaction="" if button else key,
    )


def address_of(room: RoomInfo, identity: BotIdentity, thread: str = "") -> Address:
    """Return the address of a room, or of a thread in it."""
    group: ChatType = "thread" if thread else "group"
    return Address(identity.platform, room.room_id, "private" if room.private else group, thread)


def _read_event_time(event: RoomEvent) -> datetime:
    return datetime.fromtimestamp(min(max(event.origin_server_ts, 0), _MAX_TIMESTAMP) / 1000, UTC)


def _is_addressed(body_fields: MessageBody, room: RoomInfo, identity: BotIdentity, related: RoomEvent | None) -> bool:
    if room.private or identity.group_mode == "free" or _mentions_us(body_fields, identity):
        return True
    return identity.group_mode == "reply" and related is not None and related.sender == identity.user_id


def _mentions_us(body_fields: MessageBody, identity: BotIdentity) -> bool:
    if body_fields.mentions is not None:
        return identity.user_id in body_fields.mentions.user_ids
    # Clients before Matrix 1.7 don't declare mentions: they link to the person, or write the whole id.
    link = re.escape(f"https://matrix.to/#/{identity.user_id}") + r"(?=[\"'?])"
    whole = r"(?<![\w@])" + re.escape(identity.user_id) + r"(?![\w:])"
    return bool(re.search(link, body_fields.formatted_body.replace("%40", "@")) or re.search(whole, body_fields.body))


def _render_text(event: RoomEvent, body_fields: MessageBody, room: RoomInfo, identity: BotIdentity) -> str:
    if event.type == "m.sticker":
        return ""
    if body_fields.msgtype in _KINDS:
        return body_fields.body if body_fields.filename and body_fields.filename != body_fields.body else ""
    text = _QUOTE.sub("", body_fields.body, count=1) if body_fields.relates_to.answered else body_fields.body
    if body_fields.msgtype == "m.emote":
        return f"* {room.people.get(event.sender) or event.sender} {text}"
    if body_fields.geo_uri and body_fields.msgtype == "m.location":
        return f"{text}\n{body_fields.geo_uri}"
    return _strip_salutation(text, identity) if _mentions_us(body_fields, identity) else text


def _strip_salutation(text: str, identity: BotIdentity) -> str:
    """Remove a leading name, so that a command after it is recognised."""
    local = identity.user_id[1:].partition(":")[0]
    names = "|".join(
        re.escape(name)
        for name in sorted({identity.user_id[1:], *identity.names, local}, key=len, reverse=True)
        if name
    )
    found = re.match(rf"\s*@?(?:{names})(?:[:,]\s*|\s+(?=/))(?=\S)", text, re.IGNORECASE)
    return text[found.end() :] if found else text


def _list_attachments(event: RoomEvent, body_fields: MessageBody) -> tuple[Attachment, ...]:
    kind = "sticker" if event.type == "m.sticker" else _KINDS.get(body_fields.msgtype, "")
    if kind == "document" and body_fields.msgtype == "m.audio" and body_fields.voice is not None:
        kind = "voice"
    reference = body_fields.url if body_fields.file is None else msgspec.json.encode(body_fields.file).decode()
    if not kind or not reference:
        return ()
    name = body_fields.filename or body_fields.body
    media_type, size = body_fields.info.mimetype, max(body_fields.info.size, 0)
    found = {"reference": reference, "kind": kind, "name": name, "media_type": media_type, "size": size}
    if kind == "sticker":
        found |= {"unique_id": body_fields.url, "hint": body_fields.body}
    return (msgspec.convert(found, Attachment),)

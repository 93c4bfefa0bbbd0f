"""Rooms: groups in which the agent reads messages to others and answers by a rule."""

import re
from datetime import datetime

from msgspec import Struct, structs

from talaria.contracts.platform import Incoming
from talaria.contracts.store import Transaction
from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import ROOM, SILENT, Message, Text, author_label, indent_text
from talaria.runtime.turns import MIRROR, make_arrival
from talaria.sessions.keys import build_session_key, escape_key_part
from talaria.settings.sections.chats import RoomSettings

_MATCHED_CHARACTERS = 4_000
_MESSAGE_BYTES = 4_000
_OPENING = "Messages to others in this room since the last one to you, oldest first:"

GROUP_INSTRUCTIONS = (
    "Several people talk here: each message starts with its author in brackets, and its other lines are indented."
)
ROOM_INSTRUCTIONS = (
    "You also read messages to others; they are context, not requests to you. If nothing needs to be said, reply only"
    f" {SILENT}, and nothing is sent."
)


class RoomMessage(Struct, frozen=True, omit_defaults=True):
    """Message in a room that was not for the agent."""

    author: str
    text: str
    at: datetime


ROOM_MESSAGE = NamedValue("room_message", RoomMessage)  # by room and message, until the agent reads it


def is_for_agent(update: Incoming, room: RoomSettings) -> bool:
    """Return whether the rule of a room lets the agent answer a message to others."""
    if update.reaction or update.button:
        return False
    if room.answer == "pattern":
        return bool(room.pattern and re.search(room.pattern, update.text[:_MATCHED_CHARACTERS]))
    return room.answer == "always"


def record_room_message(tx: Transaction, update: Incoming, room: RoomSettings) -> None:
    """Store a message to others until the agent reads it; the oldest ones beyond the limits are deleted.

    A redelivery or an edit replaces the message.
    """
    text = _describe(update)
    if not text or not room.messages:
        return
    prefix = _build_key_prefix(update.address)
    label = author_label(update.sender.name, update.sender.id)
    key = f"{prefix}{escape_key_part(update.message_id or update.external_id)}"
    ROOM_MESSAGE.write(tx, key, RoomMessage(label, text, update.at))
    stored = ROOM_MESSAGE.items(tx, prefix)
    for surplus in stored.keys() - _select_latest(stored, room):
        ROOM_MESSAGE.delete(tx, surplus)


def add_room_messages(tx: Transaction, session_id: SessionId, address: Address, room: RoomSettings) -> None:
    """Move the stored messages of a room to the session; they precede its next turn in the transcript.

    Each message is moved once, whichever worker does it.
    """
    stored = ROOM_MESSAGE.items(tx, _build_key_prefix(address))
    latest = _select_latest(stored, room)
    moved = [stored[key] for key in stored if ROOM_MESSAGE.delete(tx, key) and key in latest]
    if not moved:
        return
    moved.sort(key=lambda one: one.at)
    lines = "\n".join(f"{one.author} {indent_text(one.text)}" for one in moved)
    message = Message(role="user", parts=(Text(f"{_OPENING}\n{lines}"),), at=moved[-1].at, author=ROOM)
    tx.inbox.add(make_arrival(session_id, ROOM, new_id(), message, kind=MIRROR))


def _select_latest(stored: dict[str, RoomMessage], room: RoomSettings) -> set[str]:
    """Return the keys of the latest messages within the limits of a room."""
    latest: set[str] = set()
    remaining = room.max_bytes
    for key in sorted(stored, key=lambda one: stored[one].at, reverse=True)[: room.messages]:
        remaining -= len(stored[key].author.encode()) + len(stored[key].text.encode())
        if remaining < 0:
            break
        latest.add(key)
    return latest


def _describe(update: Incoming) -> str:
    """Return the text of a message, cut to a length, with its attachments by kind."""
    files = "".join(f" ({one.kind}{f' {one.name}' if one.name else ''})" for one in update.attachments)
    text = f"{update.text}{files}".strip()
    cut = text.encode()[:_MESSAGE_BYTES].decode(errors="ignore")
    return cut if cut == text else f"{cut}…"


def _build_key_prefix(address: Address) -> str:
    return f"{build_session_key(structs.replace(address, user_id=''))}:"

"""Translate messages into event contents."""

import hashlib
import re
from typing import Any

import msgspec

from talaria.contracts.platform import Content
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.platforms.matrix.events import BUTTONS
from talaria.platforms.matrix.formatting import clean, to_html

TEXT_LIMIT = 20_000
EVENT_LIMIT = 60_000  # of 65,536 bytes that an event may have with all that servers add to it
ENCRYPTED_LIMIT = 44_000  # what is left of these when four bytes stand for three
_LABEL_LIMIT = 60
_EXCERPT = 200
_USER_ID = re.compile(r"(?<![\w@/])@[a-z0-9._=/+-]+:[A-Za-z0-9.-]+[A-Za-z0-9](?::\d+)?")
_KINDS = {"image": "m.image", "audio": "m.audio", "video": "m.video"}

Json = dict[str, Any]


def check_text(content: Content) -> None:
    """Raise `Rejected` for an empty or too long message."""
    if not content.text.strip() and not content.files:
        raise Rejected("there is nothing to send")
    if len(clean(content.text).encode()) > TEXT_LIMIT:
        raise Rejected(f"the text is longer than {TEXT_LIMIT} bytes")


def transaction_id(key: str, part: str = "") -> str:
    """Return the transaction id under which a homeserver accepts a message once, fixed per key and part."""
    return "talaria-" + hashlib.sha256(f"{key}\x00{part}".encode("utf-8", "surrogatepass")).hexdigest()[:40]


def message_content(content: Content, to: Address, *, asker: str = "", limit: int = EVENT_LIMIT) -> Json:
    """Return the content of a message with its formatting, thread and buttons; it mentions the asker."""
    event_content = _text_content(content.text, limit)
    people = [*([asker] if asker else []), *_USER_ID.findall(content.text)]
    event_content["m.mentions"] = {"user_ids": list(dict.fromkeys(people))} if people else {}
    relation = relates_to(to.thread_id, content.reply_to)
    if relation:
        event_content["m.relates_to"] = relation
    if content.buttons:
        event_content[BUTTONS] = [{"label": one.label[:_LABEL_LIMIT], "value": one.value} for one in content.buttons]
    return event_content


def edit_content(content: Content, message_id: str, *, limit: int = EVENT_LIMIT) -> Json:
    """Return the content that replaces a message, without a second notification."""
    event_content = _text_content(content.text, limit - 4 * _EXCERPT - 500)
    return {
        "msgtype": "m.text",
        "body": f"* {clean(content.text)[:_EXCERPT]}",
        "m.mentions": {},
        "m.new_content": event_content | {"m.mentions": {}},
        "m.relates_to": {"rel_type": "m.replace", "event_id": message_id},
    }


def file_content(name: str, media_type: str, size: int, uploaded: Json, relation: Json) -> Json:
    """Return the content that shows a file; ``uploaded`` is its URL, optionally with a key."""
    kind = _KINDS.get(media_type.partition("/")[0], "m.file")
    info = {"mimetype": media_type, "size": size}
    file_event: Json = {"msgtype": kind, "body": name, "filename": name, "info": info, "m.mentions": {}, **uploaded}
    return file_event | ({"m.relates_to": relation} if relation else {})


def reaction_content(message_id: str, label: str) -> Json:
    """Return the content of a reaction, which represents a button."""
    return {"m.relates_to": {"rel_type": "m.annotation", "event_id": message_id, "key": label[:_LABEL_LIMIT]}}


def relates_to(thread: str, reply_to: str) -> Json:
    """Return the relation of a message; clients without threads see an answer to the thread's root."""
    reply_relation = {"m.in_reply_to": {"event_id": reply_to or thread}}
    if not thread:
        return reply_relation if reply_to else {}
    falling_back = not reply_to or reply_to == thread
    return {"rel_type": "m.thread", "event_id": thread, "is_falling_back": falling_back, **reply_relation}


def _text_content(text: str, limit: int) -> Json:
    """Return a text in plain and, if there is room for both, formatted."""
    body = clean(text)
    plain: Json = {"msgtype": "m.text", "body": body}
    html = to_html(body)
    formatted = plain | {"format": "org.matrix.custom.html", "formatted_body": html}
    return formatted if html and len(msgspec.json.encode(formatted)) <= limit else plain

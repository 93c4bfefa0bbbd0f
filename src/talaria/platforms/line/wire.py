"""Translation between events and messages of LINE and the vocabulary, without I/O."""

import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Attachment, Button, Content, Incoming, Sender
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, PlatformError, Rejected, Unreachable
from talaria.platforms.content import PLAIN, convert_markdown
from talaria.platforms.http_api import ApiAnswer, describe_error, pause_of
from talaria.platforms.line.settings import LineSettings

TEXT_LIMIT = 5000  # UTF-16 code units
MOST_MESSAGES = 5
_MOST_BUTTONS = 13
_LABEL_LENGTH = 20
_KEYS = uuid.UUID("6f1a8d0e-36a1-4c0b-9d6b-2f3f6d4f0c55")


class LineSource(Struct, rename="camel"):
    """The sender and the chat of an event."""

    type: str
    user_id: str = ""
    group_id: str = ""
    room_id: str = ""

    @property
    def chat_id(self) -> str:
        """Return the id that messages are pushed to."""
        return self.group_id or self.room_id or self.user_id


class LineMentionee(Struct, rename="camel"):
    """A mention in a text, at a position in UTF-16 code units."""

    type: str = "user"
    index: int = 0
    length: int = 0
    is_self: bool = False


class LineMention(Struct):
    """The mentions of a text."""

    mentionees: tuple[LineMentionee, ...] = ()


class LineProvider(Struct, frozen=True):
    """Location of the content of a file: on LINE's servers, or elsewhere."""

    type: str = "line"


class LineMessage(Struct, rename="camel"):
    """A message of a person."""

    id: str
    type: str
    text: str = ""
    quote_token: str = ""
    quoted_message_id: str = ""
    mention: LineMention | None = None
    file_name: str = ""
    file_size: int = 0
    content_provider: LineProvider = LineProvider()
    keywords: tuple[str, ...] = ()
    title: str = ""
    address: str = ""
    latitude: float = 0.0
    longitude: float = 0.0


class LinePostback(Struct):
    """The data of a pressed button."""

    data: str = ""


class LineEvent(Struct, rename="camel"):
    """An event of a webhook; the same ``webhook_event_id`` again is a redelivery."""

    type: str
    webhook_event_id: str
    timestamp: int
    source: LineSource | None = None
    message: LineMessage | None = None
    postback: LinePostback | None = None


class LineWebhook(Struct):
    """The body of a post of LINE."""

    events: tuple[LineEvent, ...]


class LineSent(Struct):
    """A message that was accepted."""

    id: str


class LinePushed(Struct, rename="camel"):
    """The answer to a push."""

    sent_messages: tuple[LineSent, ...] = ()


class LineProfile(Struct, rename="camel"):
    """A person's profile."""

    display_name: str = ""


def read_events(body: bytes) -> tuple[LineEvent, ...]:
    """Return the events of a post; raises `ValueError` if it isn't one of LINE."""
    return msgspec.json.decode(body, type=LineWebhook).events


def to_incoming(event: LineEvent, name: str, settings: LineSettings) -> Incoming | None:
    """Return what a person named ``name`` wrote, sent or pressed; ``None`` for other events."""
    source = event.source
    if source is None or not source.user_id or (event.message is None and event.postback is None):
        return None
    is_private = source.type == "user"
    address = Address(settings.name, source.chat_id, "private" if is_private else "group")
    sender, at = Sender(source.user_id, name), datetime.fromtimestamp(event.timestamp / 1000, UTC)
    if event.message is None:
        message_id, _, value = (event.postback or LinePostback()).data.partition(" ")
        return Incoming(
            external_id=event.webhook_event_id,
            address=address,
            sender=sender,
            at=at,
            button=value,
            message_id=message_id,
        )
    message = event.message
    mentions = message.mention.mentionees if message.mention else ()
    return Incoming(
        external_id=event.webhook_event_id,
        address=address,
        sender=sender,
        at=at,
        text=_describe(message),
        attachments=_list_attachments(message),
        message_id=message.id,
        reply_to=message.quoted_message_id,
        addressed=is_private or settings.group_mode == "free" or any(one.is_self for one in mentions),
    )


def _describe(message: LineMessage) -> str:
    match message.type:
        case "sticker":
            return f"(sticker: {', '.join(message.keywords) or 'no description'})"
        case "location":
            where = f"{message.latitude}, {message.longitude}"
            return "\n".join(filter(None, (message.title, message.address, where)))
        case _:
            return _remove_mentions(message)


def _remove_mentions(message: LineMessage) -> str:
    """Return a text without mentions of us, so that a command after one is found."""
    ours = [one for one in (message.mention.mentionees if message.mention else ()) if one.is_self and one.length > 0]
    if not ours:
        return message.text
    text = message.text.encode("utf-16-le")
    for mention in sorted(ours, key=lambda one: one.index, reverse=True):
        text = text[: 2 * mention.index] + text[2 * (mention.index + mention.length) :]
    return text.decode("utf-16-le", errors="replace").strip()


def _list_attachments(message: LineMessage) -> tuple[Attachment, ...]:
    if message.content_provider.type != "line":
        return ()
    match message.type:
        case "image":
            return (Attachment(message.id, "picture", "", "image/jpeg"),)
        case "audio":
            return (Attachment(message.id, "voice", "", "audio/mp4"),)
        case "video":
            return (Attachment(message.id, "document", "", "video/mp4"),)
        case "file":
            return (Attachment(message.id, "document", message.file_name, size=message.file_size),)
        case _:
            return ()


def make_key(to: Address, key: str, part: int) -> str:
    """Return the retry key of a push: LINE accepts the same one once within a day."""
    return str(uuid.uuid5(_KEYS, f"{to.chat_id}\n{part}\n{key}"))


def make_messages(content: Content, links: Sequence[Mapping[str, Any]], key: str, quote: str) -> list[dict[str, Any]]:
    """Return the message objects of a content with these files; raises `Rejected` for a text that can't be sent."""
    text = convert_markdown(content.text, PLAIN)
    if (size := len(text.encode("utf-16-le")) // 2) > TEXT_LIMIT:
        raise Rejected(f"a message has at most {TEXT_LIMIT} characters, and this one {size}")
    messages: list[dict[str, Any]] = []
    if text.strip():
        messages.append({"type": "text", "text": text} | ({"quoteToken": quote} if quote else {}))
    messages += map(dict, links)
    if not messages:
        raise Rejected("a message without text can't be sent")
    if content.buttons:
        messages[-1]["quickReply"] = {"items": [_encode_button(one, key) for one in content.buttons[:_MOST_BUTTONS]]}
    return messages


def _encode_button(button: Button, key: str) -> dict[str, Any]:
    label = button.label if len(button.label) <= _LABEL_LENGTH else f"{button.label[: _LABEL_LENGTH - 1]}…"
    action = {"type": "postback", "label": label, "data": f"{key} {button.value}", "displayText": button.label}
    return {"type": "action", "action": action}


def to_error(answer: ApiAnswer) -> PlatformError:
    """Return the error for a refused call."""
    if answer.status in {401, 403}:
        return BadCredentials("LINE doesn't accept the channel access token")
    if answer.status == 429:
        return pause_of(answer)
    if 400 <= answer.status < 500:
        return Rejected(f"LINE refuses it with {describe_error(answer)}")
    return Unreachable(f"LINE failed with {describe_error(answer)}")

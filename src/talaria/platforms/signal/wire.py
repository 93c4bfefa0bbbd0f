"""Translation between signal-cli's JSON and the vocabulary, without I/O."""

import base64
import mimetypes
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from urllib.parse import quote

from msgspec import Struct

from talaria.contracts.platform import Attachment, Content, Incoming, Sender
from talaria.core.addresses import Address
from talaria.core.errors import PlatformError, Rejected, SlowDown, Unreachable
from talaria.platforms.content import PLAIN, convert_markdown, sanitize_text

TEXT_LIMIT = 2000  # bytes; a longer text would be sent as a file
_MENTION = "\ufffc"  # stands for a mention in the text
_PAUSE = timedelta(seconds=60)
_VOICE = "audio/"
_IO_ERROR, _UNTRUSTED, _RATE_LIMIT, _CAPTCHA = -3, -4, -5, -6


class SignalMention(Struct, frozen=True, rename="camel"):
    """A mention: a range of the text, in UTF-16 units, and the person."""

    start: int = 0
    length: int = 1
    uuid: str = ""
    number: str | None = None


class SignalQuote(Struct, frozen=True, rename="camel"):
    """The message that is answered."""

    id: int = 0
    author_uuid: str = ""
    author_number: str | None = None


class SignalReaction(Struct, frozen=True, rename="camel"):
    """A reaction to a message."""

    emoji: str = ""
    target_author_uuid: str = ""
    target_author_number: str | None = None
    target_sent_timestamp: int = 0
    is_remove: bool = False


class SignalGroup(Struct, frozen=True, rename="camel"):
    """The group of a message; ``DELIVER`` is a message, other types are changes of the group."""

    group_id: str
    type: str = "DELIVER"
    group_name: str | None = None


class SignalFile(Struct, frozen=True, rename="camel"):
    """A file, which the daemon has stored."""

    id: str
    content_type: str = ""
    filename: str | None = None
    size: int = 0


class DataMessage(Struct, frozen=True, rename="camel"):
    """A message."""

    timestamp: int
    message: str | None = None
    expires_in_seconds: int = 0
    view_once: bool = False
    group_info: SignalGroup | None = None
    attachments: tuple[SignalFile, ...] = ()
    mentions: tuple[SignalMention, ...] = ()
    quote: SignalQuote | None = None
    reaction: SignalReaction | None = None


class EditMessage(Struct, frozen=True, rename="camel"):
    """The new text of an earlier message."""

    target_sent_timestamp: int
    data_message: DataMessage


class Envelope(Struct, frozen=True, rename="camel", omit_defaults=True):
    """A received item: a message, an edit, or something that is none of our business, like a receipt."""

    source_uuid: str = ""
    source_number: str | None = None
    source_name: str | None = None
    timestamp: int = 0
    data_message: DataMessage | None = None
    edit_message: EditMessage | None = None

    @property
    def sender_id(self) -> str:
        """Return the id of the sender, which stays the same if they change their number."""
        return self.source_uuid or self.source_number or ""

    @property
    def message(self) -> DataMessage | None:
        """Return the message or the edited one."""
        return self.edit_message.data_message if self.edit_message else self.data_message


class OwnIdentity(Struct, frozen=True):
    """Our number and id; the id is empty until it is known."""

    number: str
    uuid: str = ""

    def is_us(self, uuid: str, number: str | None) -> bool:
        """Return whether these belong to us."""
        return (bool(uuid) and uuid == self.uuid) or number == self.number


def is_message(envelope: Envelope) -> bool:
    """Return whether a person wrote something or reacted."""
    message = envelope.message
    if message is None or not envelope.sender_id:
        return False
    if message.group_info and message.group_info.type != "DELIVER":
        return False
    return bool(message.message or message.attachments or (message.reaction and not message.reaction.is_remove))


def to_address(platform: str, envelope: Envelope) -> Address:
    """Return the chat of a message."""
    message = envelope.message
    if message is not None and message.group_info:
        return Address(platform, message.group_info.group_id, "group")
    return Address(platform, envelope.sender_id)


def to_incoming(envelope: Envelope, platform: str, us: OwnIdentity) -> Incoming | None:
    """Return the update for a received item; ``None`` if nobody wrote it."""
    message = envelope.message
    if message is None or not is_message(envelope):
        return None
    address, sender = to_address(platform, envelope), envelope.sender_id
    update_id = f"{sender}:{envelope.timestamp or message.timestamp}"
    at = datetime.fromtimestamp((envelope.timestamp or message.timestamp) / 1000, UTC)
    common: dict[str, Any] = {
        "external_id": update_id,
        "address": address,
        "sender": Sender(sender, envelope.source_name or envelope.source_number or sender),
        "at": at,
        "chat_name": (message.group_info.group_name or "") if message.group_info else (envelope.source_name or ""),
    }
    if (reaction := message.reaction) is not None:
        ours = us.is_us(reaction.target_author_uuid, reaction.target_author_number)
        author = us.number if ours else reaction.target_author_uuid or reaction.target_author_number
        target = f"{author}:{reaction.target_sent_timestamp}"
        return Incoming(**common, message_id=target, reaction=reaction.emoji, addressed=ours)
    text, mentioned = _read_text(message, us)
    quote_of = message.quote
    answers_us = quote_of is not None and us.is_us(quote_of.author_uuid, quote_of.author_number)
    sent = envelope.edit_message.target_sent_timestamp if envelope.edit_message else message.timestamp
    return Incoming(
        **common,
        text=text,
        attachments=() if message.view_once else tuple(_to_attachment(file) for file in message.attachments),
        message_id=f"{sender}:{sent}",
        reply_to=_make_quoted_id(quote_of, us) if quote_of else "",
        addressed=address.chat_type == "private" or mentioned or answers_us,
        edited=envelope.edit_message is not None,
    )


def send_params(to: Address, content: Content, files: list[str]) -> dict[str, object]:
    """Return the parameters that send a message; raises `Rejected` if it is empty or too long."""
    text = convert_markdown(content.text, PLAIN)
    if len(text.encode()) > TEXT_LIMIT:
        raise Rejected(f"a message has at most {TEXT_LIMIT} bytes, and this one {len(text.encode())}")
    if not text.strip() and not files:
        raise Rejected("a message without text can't be sent")
    params: dict[str, object] = {**chat_params(to), "message": text}
    if files:
        params["attachments"] = files
    if content.reply_to:
        author, timestamp = read_message_id(content.reply_to)
        params |= {"quoteAuthor": author, "quoteTimestamp": timestamp}
    return params


def chat_params(to: Address) -> dict[str, object]:
    """Return the parameters that name a chat."""
    return {"recipient": [to.chat_id]} if to.chat_type == "private" else {"groupId": to.chat_id}


def read_message_id(message_id: str) -> tuple[str, int]:
    """Return author and time of a message; raises `Rejected` if it is no id of a message."""
    author, _, timestamp = message_id.rpartition(":")
    if not author or not timestamp.isdigit():
        raise Rejected(f"{message_id} is no message on Signal")
    return author, int(timestamp)


def encode_file(data: bytes, name: str, media_type: str) -> str:
    """Return a file as the daemon takes it, wherever it runs."""
    media_type = media_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return f"data:{media_type};filename={quote(name)};base64,{base64.b64encode(data).decode()}"


def to_error(code: int, message: str) -> PlatformError:
    """Return our error for one of the daemon."""
    if code == _RATE_LIMIT:
        return SlowDown("Signal asks for a pause", retry_after=_PAUSE, everywhere=True)
    if code == _UNTRUSTED:
        return Rejected("the receiver's safety number has changed. Trust it with `signal-cli trust`")
    if code == _CAPTCHA:
        return Rejected("Signal asks for a captcha. Solve it with `signal-cli submitRateLimitChallenge`")
    if code == _IO_ERROR or code == -32603:
        return Unreachable(f"signal-cli can't reach Signal: {message}")
    return Rejected(f"signal-cli refused: {message}")


def check_results(results: list[dict[str, Any]]) -> None:
    """Raise an error if nobody got a message."""
    kinds = [str(result.get("type", "")) for result in results]
    if not kinds or "SUCCESS" in kinds:
        return
    if "RATE_LIMIT_FAILURE" in kinds:
        seconds = max(int(result.get("retryAfterSeconds") or 0) for result in results)
        raise SlowDown("Signal asks for a pause", retry_after=timedelta(seconds=seconds) if seconds else _PAUSE)
    if "NETWORK_FAILURE" in kinds:
        raise Unreachable("signal-cli can't reach Signal")
    raise Rejected(f"Signal didn't deliver the message: {', '.join(kinds)}")


def _read_text(message: DataMessage, us: OwnIdentity) -> tuple[str, bool]:
    """Return the text without mentions of us, with the names of others, and whether we are mentioned."""
    units = (message.message or "").encode("utf-16-le")
    mentioned = False
    for mention in sorted(message.mentions, key=lambda one: -one.start):
        ours = us.is_us(mention.uuid, mention.number)
        mentioned |= ours
        name = "" if ours else f"@{mention.number or mention.uuid}"
        units = units[: mention.start * 2] + name.encode("utf-16-le") + units[(mention.start + mention.length) * 2 :]
    text = sanitize_text(units.decode("utf-16-le", errors="replace")).replace(_MENTION, "")
    return (text.strip() if mentioned else text), mentioned


def _make_quoted_id(quote_of: SignalQuote, us: OwnIdentity) -> str:
    ours = us.is_us(quote_of.author_uuid, quote_of.author_number)
    return f"{us.number if ours else quote_of.author_uuid or quote_of.author_number}:{quote_of.id}"


def _to_attachment(file: SignalFile) -> Attachment:
    kind: Literal["picture", "voice", "document"] = "document"
    if file.content_type.startswith("image/"):
        kind = "picture"
    elif file.content_type.startswith(_VOICE):
        kind = "voice"
    return Attachment(file.id, kind, file.filename or file.id, file.content_type, file.size)

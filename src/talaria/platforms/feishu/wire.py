"""Translation between events and messages of Feishu and the vocabulary, and checks of posts, without I/O."""

import base64
import hashlib
import hmac
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7
from msgspec import Struct

from talaria.contracts.platform import Attachment, Button, Incoming, Sender
from talaria.core.addresses import Address, ChatType
from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.platforms.content import sanitize_text
from talaria.platforms.feishu.settings import FeishuSettings
from talaria.platforms.http_api import ApiAnswer, describe_error, pause_of
from talaria.platforms.push_receiver import PushRequest
from talaria.platforms.signatures import BadSignature, check_signatures, check_timestamp

TEXT_LIMIT = 10_000  # bytes; a card has 30 KB with its markup
_ROW = 4  # buttons side by side
_BUTTON, _KIND, _ROOT = "talaria_button", "talaria_chat", "talaria_thread"
_KEYS = uuid.UUID("5d7c1b58-2a0c-4ac9-a7a5-0e0a4ad4d9d2")
_BAD_TOKEN = {99991661, 99991663, 99991664, 99991665, 99991668, 10003, 10014}
_TOO_FAST = {99991400, 230020, 11232}
_BLOCK = 16  # bytes


class FeishuId(Struct):
    """The ids of a person; ``open_id`` is the one for our app."""

    open_id: str = ""


class FeishuMention(Struct):
    """A mention; ``key`` stands for it in the text."""

    key: str
    id: FeishuId = msgspec.field(default_factory=FeishuId)
    name: str = ""


class FeishuMessage(Struct):
    """A message of a person; ``content`` is JSON, ``root_id`` the first message of its thread."""

    message_id: str
    chat_id: str
    chat_type: str
    message_type: str
    content: str
    create_time: str
    root_id: str = ""
    parent_id: str = ""
    thread_id: str = ""
    mentions: tuple[FeishuMention, ...] = ()


class FeishuSender(Struct):
    """The author of a message: ``user`` or ``app``."""

    sender_id: FeishuId
    sender_type: str = "user"


class FeishuAction(Struct):
    """A pressed button."""

    value: dict[str, Any] | str | None = None


class FeishuContext(Struct):
    """The card of a pressed button."""

    open_message_id: str = ""
    open_chat_id: str = ""


class FeishuPayload(Struct):
    """The content of an event: a message, or a pressed button."""

    sender: FeishuSender | None = None
    message: FeishuMessage | None = None
    operator: FeishuId | None = None
    action: FeishuAction | None = None
    context: FeishuContext | None = None


class FeishuHeader(Struct):
    """Kind and id of an event; the same id again is a redelivery."""

    event_id: str
    event_type: str
    token: str = ""
    create_time: str = "0"
    tenant_key: str = ""


class FeishuEvent(Struct):
    """A decrypted post: an event, or with a ``challenge`` the test of the address."""

    header: FeishuHeader | None = None
    event: FeishuPayload | None = None
    type: str = ""
    challenge: str = ""
    token: str = ""


class FeishuFound(Struct):
    """The data of an answer that we use."""

    message_id: str = ""
    image_key: str = ""
    file_key: str = ""
    user: dict[str, Any] | None = None


class FeishuBot(Struct):
    """Our own account."""

    open_id: str
    app_name: str = ""


class FeishuAnswer(Struct):
    """The answer to a call; ``code`` is 0 for a success."""

    code: int = 0
    msg: str = ""
    data: FeishuFound = msgspec.field(default_factory=FeishuFound)
    bot: FeishuBot | None = None


class _Text(Struct):
    text: str = ""
    title: str = ""
    content: list[list[dict[str, Any]]] | None = None
    image_key: str = ""
    file_key: str = ""
    file_name: str = ""


def read_event(body: bytes) -> FeishuEvent:
    """Return the event of a decrypted post; raises `ValueError` if it isn't one of Feishu."""
    return msgspec.json.decode(body, type=FeishuEvent)


def author_of(event: FeishuEvent) -> str:
    """Return the id of the person who wrote or pressed; empty for other events and for apps."""
    payload = event.event
    if payload is None:
        return ""
    if payload.operator is not None:
        return payload.operator.open_id
    sender = payload.sender
    return sender.sender_id.open_id if sender is not None and sender.sender_type == "user" else ""


def to_incoming(event: FeishuEvent, sender: Sender, bot_id: str, settings: FeishuSettings) -> Incoming | None:
    """Return what a person wrote, sent or pressed; ``None`` for other events."""
    header, payload = event.header, event.event
    if header is None or payload is None:
        return None
    if header.event_type == "card.action.trigger":
        return _read_press(header, payload, sender, settings.name)
    if header.event_type != "im.message.receive_v1" or payload.message is None:
        return None
    message = payload.message
    content = msgspec.json.decode(message.content, type=_Text)
    mentions_us = any(one.id.open_id == bot_id for one in message.mentions)
    is_private = message.chat_type == "p2p"
    return Incoming(
        external_id=message.message_id,
        address=_to_address(message, settings.name),
        sender=sender,
        at=datetime.fromtimestamp(int(message.create_time) / 1000, UTC),
        text=_read_text(content, message.mentions, bot_id),
        attachments=_read_attachments(message, content),
        message_id=message.message_id,
        reply_to=message.parent_id,
        addressed=is_private or mentions_us or settings.group_mode == "free",
        server=header.tenant_key,
    )


def _read_press(header: FeishuHeader, payload: FeishuPayload, sender: Sender, platform: str) -> Incoming | None:
    value = payload.action.value if payload.action else None
    if not isinstance(value, dict) or _BUTTON not in value or payload.context is None:
        return None
    root, kind = str(value.get(_ROOT, "")), str(value.get(_KIND, ""))
    chat_type: ChatType = "private" if kind == "private" else "thread" if root else "group"
    return Incoming(
        external_id=header.event_id,
        address=Address(platform, payload.context.open_chat_id, chat_type, root),
        sender=sender,
        at=datetime.now(UTC),
        button=str(value[_BUTTON]),
        message_id=payload.context.open_message_id,
        server=header.tenant_key,
    )


def _to_address(message: FeishuMessage, platform: str) -> Address:
    root = (message.root_id or message.message_id) if message.thread_id else ""
    if message.chat_type == "p2p":
        return Address(platform, message.chat_id, "private", root)
    return Address(platform, message.chat_id, "thread" if root else "group", root)


def _read_text(content: _Text, mentions: Sequence[FeishuMention], bot_id: str) -> str:
    """Return a text without mentions of us; other people are mentioned as ``@name``."""
    text = content.text
    if content.content is not None:  # rich text: paragraphs of parts
        lines = ["".join(str(part.get("text", "")) or _get_mention(part) for part in line) for line in content.content]
        text = "\n".join(filter(None, (content.title, *lines)))
    for one in mentions:
        text = text.replace(one.key, "" if one.id.open_id == bot_id else f"@{one.name}")
    return text.strip()


def _get_mention(part: Mapping[str, Any]) -> str:
    return str(part.get("user_id", "")) if part.get("tag") == "at" else ""


def _read_attachments(message: FeishuMessage, content: _Text) -> tuple[Attachment, ...]:
    prefix = message.message_id
    match message.message_type:
        case "image":
            return (Attachment(f"{prefix} image {content.image_key}", "picture", "", "image/png"),)
        case "audio":
            return (Attachment(f"{prefix} file {content.file_key}", "voice", "", "audio/ogg"),)
        case "file" | "media":
            return (Attachment(f"{prefix} file {content.file_key}", "document", content.file_name),)
        case "post":
            parts = [part for line in content.content or [] for part in line if part.get("tag") == "img"]
            return tuple(Attachment(f"{prefix} image {one.get('image_key', '')}", "picture") for one in parts)
        case _:
            return ()


def make_key(to: Address, key: str, part: int) -> str:
    """Return the id of a request: Feishu posts the same one once within an hour."""
    return str(uuid.uuid5(_KEYS, f"{to.chat_id}\n{to.thread_id}\n{part}\n{key}"))


def check_text(text: str, *, with_files: bool = False) -> str:
    """Return a text that Feishu takes; raises `Rejected` if it is empty or too long."""
    text = sanitize_text(text)
    if (size := len(text.encode())) > TEXT_LIMIT:
        raise Rejected(f"a message has at most {TEXT_LIMIT} bytes, and this one {size}")
    if not text.strip() and not with_files:
        raise Rejected("a message without text can't be sent")
    return text if text.strip() else ""


def make_card(to: Address, text: str, buttons: Sequence[Button]) -> str:
    """Return a card with a Markdown text and buttons; unlike a text, it can be edited as often as needed."""
    origin = {_KIND: to.chat_type, _ROOT: to.thread_id}
    actions = [
        {
            "tag": "button",
            "text": {"tag": "plain_text", "content": one.label},
            "type": "default",
            "value": {_BUTTON: one.value, **origin},
        }
        for one in buttons
    ]
    rows = [{"tag": "action", "actions": actions[at : at + _ROW]} for at in range(0, len(actions), _ROW)]
    elements = [{"tag": "markdown", "content": text}, *rows]
    return msgspec.json.encode({"config": {"update_multi": True}, "elements": elements}).decode()


def is_expired(answer: ApiAnswer) -> bool:
    """Return whether a call was refused because of its token."""
    try:
        return msgspec.json.decode(answer.body, type=FeishuAnswer).code in _BAD_TOKEN
    except msgspec.MsgspecError:
        return False


def read_answer(answer: ApiAnswer) -> FeishuAnswer:
    """Return the answer to a call; raises `Unreachable` if it isn't one of Feishu."""
    try:
        return msgspec.json.decode(answer.body, type=FeishuAnswer)
    except msgspec.MsgspecError as error:
        raise Unreachable(f"the answer is not that of Feishu: {describe_error(answer)}") from error


def to_error(answer: ApiAnswer) -> PlatformError:
    """Return the error for a refused call."""
    if answer.status >= 500:
        return Unreachable(f"Feishu failed with {describe_error(answer)}")
    code = read_answer(answer).code
    if code in _BAD_TOKEN or answer.status == 401:
        return BadCredentials("Feishu doesn't accept the app's secret")
    if code in _TOO_FAST or answer.status == 429:
        seconds = answer.headers.get("x-ogw-ratelimit-reset", "")
        pause = pause_of(ApiAnswer(429, b"", {"retry-after": seconds}))
        return SlowDown("Feishu asks for a pause", retry_after=pause.retry_after)
    return Rejected(f"Feishu refuses it with {describe_error(answer)}")


class _Encrypted(Struct):
    encrypt: str


def sign_body(timestamp: str, nonce: str, encrypt_key: str, body: bytes) -> str:
    """Return the signature of a post."""
    return hashlib.sha256(f"{timestamp}{nonce}{encrypt_key}".encode(errors="replace") + body).hexdigest()


def check_post(request: PushRequest, body: bytes, encrypt_key: str, now: datetime) -> None:
    """Raise `BadSignature` unless the sender has the key and the post is new."""
    timestamp = request.headers.get("x-lark-request-timestamp", "")
    nonce = request.headers.get("x-lark-request-nonce", "")
    check_signatures(sign_body(timestamp, nonce, encrypt_key, body), [request.headers.get("x-lark-signature", "")])
    check_timestamp(timestamp, now)


def check_token(given: str, expected: str) -> None:
    """Raise `BadSignature` unless the verification token is ours."""
    if not hmac.compare_digest(given.encode(errors="replace"), expected.encode()):
        raise BadSignature("the verification token is another one")


def decrypt_body(body: bytes, encrypt_key: str) -> bytes:
    """Return the content of an encrypted post; raises `ValueError` if it isn't encrypted with this key."""
    data = base64.b64decode(msgspec.json.decode(body, type=_Encrypted).encrypt, validate=True)
    if len(data) < 2 * _BLOCK or len(data) % _BLOCK:
        raise ValueError("the encrypted post is cut off")
    cipher = Cipher(algorithms.AES(hashlib.sha256(encrypt_key.encode()).digest()), modes.CBC(data[:_BLOCK]))
    decryptor, unpadder = cipher.decryptor(), PKCS7(8 * _BLOCK).unpadder()
    return unpadder.update(decryptor.update(data[_BLOCK:]) + decryptor.finalize()) + unpadder.finalize()

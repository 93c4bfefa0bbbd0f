"""Translation between activities of Microsoft Teams and the vocabulary, without I/O."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Attachment, Button, Content, Incoming, Sender
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, PlatformError, Rejected, Unreachable
from talaria.platforms.content import sanitize_text
from talaria.platforms.http_api import ApiAnswer, describe_error, pause_of
from talaria.platforms.teams.settings import TeamsSettings

TEXT_LIMIT = 10_000  # UTF-16 code units; a whole message has 40 KB in UTF-16
CHANNEL = "msteams"  # the id of Teams among the networks of the Bot Connector
_FILE_INFO = "application/vnd.microsoft.teams.file.download.info"
_CARD = "application/vnd.microsoft.card.adaptive"
_ROW = 5  # actions side by side; Teams hides more than six of a set
_ROOT = ";messageid="  # in the id of a conversation: the first message of a thread
_BUTTON = "talaria_button"
_MENTION = re.compile(r"<at\b[^<>]*>([^<]*)</at>", re.IGNORECASE)
_WITH_TOKEN, _OPEN = "token ", "open "


class TeamsAccount(Struct, rename="camel"):
    """A person or a bot; the ``aad_object_id`` of a person is the same for all bots."""

    id: str
    name: str | None = ""
    aad_object_id: str | None = ""


class TeamsConversation(Struct, rename="camel"):
    """A personal chat, a group chat, or a thread in a channel."""

    id: str
    conversation_type: str | None = ""
    name: str | None = ""


class TeamsFile(Struct, rename="camel"):
    """An attachment of a message."""

    content_type: str
    content_url: str | None = ""
    name: str | None = ""
    content: Any = None


class TeamsEntity(Struct):
    """A mention in a text, or other facts about a message."""

    type: str
    mentioned: TeamsAccount | None = None
    text: str | None = ""


class TeamsTeam(Struct):
    """A team or a channel of it."""

    id: str = ""
    name: str | None = ""


class TeamsData(Struct, rename="camel"):
    """Facts that only Teams has."""

    team: TeamsTeam | None = None
    channel: TeamsTeam | None = None
    event_type: str | None = ""


class TeamsActivity(Struct, rename={"sender": "from", "service_url": "serviceUrl", "channel_id": "channelId",
                                    "reply_to_id": "replyToId", "channel_data": "channelData"}):  # fmt: skip
    """A post of the Bot Connector: a message, a pressed button, an edit or something else."""

    type: str
    service_url: str
    channel_id: str
    sender: TeamsAccount
    recipient: TeamsAccount
    conversation: TeamsConversation
    timestamp: datetime | None = None
    id: str = ""
    text: str | None = ""
    attachments: tuple[TeamsFile, ...] | None = ()
    entities: tuple[TeamsEntity, ...] | None = ()
    reply_to_id: str | None = ""
    value: Any = None
    channel_data: TeamsData | None = None


class TeamsCreated(Struct, rename="camel"):
    """The answer to a new message or conversation."""

    id: str = ""
    activity_id: str = ""


class ConversationReference(Struct, frozen=True):
    """Service and kind of a chat, stored when it writes to us."""

    service_url: str
    kind: str = ""
    bot_id: str = ""


def read_activity(body: bytes) -> TeamsActivity:
    """Return the activity of a post; raises `ValueError` if it isn't one."""
    return msgspec.json.decode(body, type=TeamsActivity)


def read_address(activity: TeamsActivity, platform: str) -> Address:
    """Return the address of a conversation; in a channel that is a thread, also for its first message."""
    chat_id, _, root = activity.conversation.id.partition(_ROOT)
    match activity.conversation.conversation_type:
        case "channel":
            return Address(platform, chat_id, "thread", root or activity.id)
        case "groupChat":
            return Address(platform, chat_id, "group")
        case _:
            return Address(platform, chat_id)


def to_reference(activity: TeamsActivity) -> ConversationReference:
    """Return how the conversation of an activity is reached."""
    kind = activity.conversation.conversation_type or "personal"
    return ConversationReference(activity.service_url.rstrip("/"), kind, activity.recipient.id)


def conversation_id(chat_id: str, root: str) -> str:
    """Return the id of a conversation, or of the thread that a message of it starts."""
    return f"{chat_id}{_ROOT}{root}" if root else chat_id


def to_incoming(activity: TeamsActivity, settings: TeamsSettings) -> Incoming | None:
    """Return what a person wrote, sent, edited or pressed; ``None`` for other activities."""
    data = activity.channel_data or TeamsData()
    edited = activity.type == "messageUpdate" and data.event_type == "editMessage"
    if (activity.type != "message" and not edited) or activity.timestamp is None or not activity.id:
        return None
    button = activity.value.get(_BUTTON, "") if isinstance(activity.value, dict) else ""
    ours = [
        one.text or ""
        for one in activity.entities or ()
        if one.type == "mention" and one.mentioned is not None and one.mentioned.id == activity.recipient.id
    ]
    address = read_address(activity, settings.name)
    at = activity.timestamp
    update_id = f"{activity.conversation.id}:{activity.id}"
    return Incoming(
        external_id=f"{update_id}:{at.isoformat()}" if edited else update_id,
        address=address,
        sender=Sender(activity.sender.aad_object_id or activity.sender.id, activity.sender.name or activity.sender.id),
        at=at,
        text="" if button else _read_text(activity.text or "", ours),
        attachments=() if button else _read_attachments(activity),
        message_id=(activity.reply_to_id or "") if button else activity.id,
        chat_name=activity.conversation.name or (data.channel.name if data.channel else "") or "",
        addressed=address.chat_type == "private" or bool(ours or button) or settings.group_mode == "free",
        button=str(button),
        edited=edited,
        server=data.team.id if data.team else "",
    )


def _read_text(text: str, ours: Sequence[str]) -> str:
    """Return a text without mentions of us; other people are mentioned as ``@name``."""
    for mention in filter(None, ours):
        text = text.replace(mention, " ", 1)
    return _MENTION.sub(r"@\1", text).replace("&nbsp;", " ").strip()


def _read_attachments(activity: TeamsActivity) -> tuple[Attachment, ...]:
    found = []
    for file in activity.attachments or ():
        if file.content_type == _FILE_INFO and isinstance(file.content, dict):
            reference = _make_reference(str(file.content.get("downloadUrl", "")), activity, with_token=False)
            kind = str(file.content.get("fileType", "")).lower()
            is_picture = kind in {"png", "jpg", "jpeg", "gif", "webp"}
            found.append(Attachment(reference, "picture" if is_picture else "document", file.name or ""))
        elif file.content_type.startswith(("image/", "audio/", "video/")) and file.content_url:
            reference = _make_reference(file.content_url, activity, with_token=True)
            media_type = "" if file.content_type.endswith("/*") else file.content_type
            is_picture = file.content_type.startswith("image/")
            found.append(Attachment(reference, "picture" if is_picture else "document", file.name or "", media_type))
    return tuple(one for one in found if one.reference)


def _make_reference(url: str, activity: TeamsActivity, *, with_token: bool) -> str:
    """Return how a file is downloaded; our token is for the host of the service only, elsewhere links are HTTPS."""
    is_service = urlsplit(url).netloc == urlsplit(activity.service_url).netloc
    if not is_service and not url.startswith("https://"):
        return ""
    return f"{_WITH_TOKEN if with_token and is_service else _OPEN}{url}"


def read_reference(reference: str) -> tuple[str, bool]:
    """Return the address of a file, and whether our token is sent along."""
    return reference.partition(" ")[2], reference.startswith(_WITH_TOKEN)


def make_activity(content: Content, pictures: Sequence[Mapping[str, str]], links: Sequence[str]) -> dict[str, Any]:
    """Return the activity of a content with these files; raises `Rejected` for a text that can't be sent."""
    text = sanitize_text(content.text)
    if (size := len(text.encode("utf-16-le")) // 2) > TEXT_LIMIT:
        raise Rejected(f"a message has at most {TEXT_LIMIT} characters, and this one {size}")
    text = "\n\n".join(filter(None, (break_lines(text) if text.strip() else "", *links)))
    if not text and not pictures:
        raise Rejected("a message without text can't be sent")
    attachments: list[Mapping[str, Any]] = [*pictures]
    if content.buttons:
        attachments.append({"contentType": _CARD, "content": _build_card(content.buttons)})
    return {"type": "message", "text": text, "textFormat": "markdown", "attachments": attachments}


def _build_card(buttons: Sequence[Button]) -> dict[str, Any]:
    actions = [{"type": "Action.Submit", "title": one.label, "data": {_BUTTON: one.value}} for one in buttons]
    rows = [{"type": "ActionSet", "actions": actions[at : at + _ROW]} for at in range(0, len(actions), _ROW)]
    return {
        "type": "AdaptiveCard",
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "version": "1.4",
        "body": rows,
    }


def break_lines(text: str) -> str:
    """Return a Markdown text whose single line ends outside code are line breaks: Teams joins such lines."""
    lines, in_code = text.split("\n"), False
    for number, line in enumerate(lines):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif line.strip() and not in_code and number + 1 < len(lines) and lines[number + 1].strip():
            lines[number] = f"{line.rstrip()}  "
    return "\n".join(lines)


def to_error(answer: ApiAnswer) -> PlatformError:
    """Return the error for a refused call."""
    if answer.status == 401:
        return BadCredentials("Teams doesn't accept the token of the app")
    if answer.status == 429:
        return pause_of(answer)
    if answer.status == 412 or answer.status >= 500:  # Microsoft asks to repeat calls that fail with 412
        return Unreachable(f"Teams failed with {describe_error(answer)}")
    return Rejected(f"Teams refuses it with {describe_error(answer)}")

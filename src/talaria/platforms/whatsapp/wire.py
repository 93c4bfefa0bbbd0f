"""Translation between the Cloud API (Graph API v25.0) and the vocabulary, without I/O."""

import mimetypes
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Attachment, Button, Content, Incoming, Sender
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.platforms.content import STARS, convert_markdown, sanitize_text
from talaria.platforms.http_api import ApiAnswer, describe_error, pause_of
from talaria.platforms.whatsapp.settings import WhatsAppSettings

_KINDS: dict[str, Literal["picture", "voice", "document", "sticker"]] = {
    "image": "picture",
    "audio": "voice",
    "video": "document",
    "document": "document",
    "sticker": "sticker",
}
TEXT_LIMIT = 4096
CLOSED_CODE = 131047
_CAPTION = 1024
_MOST_BUTTONS, _BUTTON_TEXT, _BUTTON_LABEL = 3, 1024, 20
_MOST_ROWS, _ROW_TITLE, _ROW_TEXT = 10, 24, 72
_PARAMETER = 900  # the text of a template with its parameter has at most 1024
_MEGABYTE = 1024 * 1024
_LIMITS = {"image": 5 * _MEGABYTE, "video": 16 * _MEGABYTE, "audio": 16 * _MEGABYTE, "document": 100 * _MEGABYTE}
_OFFICE = "application/vnd.openxmlformats-officedocument"
_TYPES = {
    **dict.fromkeys(("image/jpeg", "image/png"), "image"),
    **dict.fromkeys(("video/mp4", "video/3gpp"), "video"),
    **dict.fromkeys(("audio/aac", "audio/amr", "audio/mpeg", "audio/mp4", "audio/ogg"), "audio"),
    **dict.fromkeys(("text/plain", "application/pdf", "application/msword"), "document"),
    **dict.fromkeys(("application/vnd.ms-excel", "application/vnd.ms-powerpoint"), "document"),
    f"{_OFFICE}.wordprocessingml.document": "document",
    f"{_OFFICE}.spreadsheetml.sheet": "document",
    f"{_OFFICE}.presentationml.presentation": "document",
}
_TEXT_TYPES = {"application/json", "application/xml", "application/yaml", "application/toml", "application/javascript"}
_BAD_ACCOUNT = {0, 3, 10, 190, 368, 131005, 131031, 131042, 131045, *range(200, 300)}
_TOO_MANY = {4, 80007, 130429, 131048, 131064, 133016}
_PAIR_LIMIT, _PAIR_PAUSE = 131056, timedelta(seconds=6)
_TEMPORARY = {1, 2, 131000, 131016, 131057, 133004}


class _Text(Struct, frozen=True):
    body: str = ""


class _Media(Struct, frozen=True):
    id: str
    mime_type: str = ""
    caption: str = ""
    filename: str = ""
    sha256: str = ""


class _Reaction(Struct, frozen=True):
    message_id: str
    emoji: str = ""


class _Choice(Struct, frozen=True):
    id: str = ""
    title: str = ""


class _Interactive(Struct, frozen=True):
    button_reply: _Choice | None = None
    list_reply: _Choice | None = None


class _TemplateButton(Struct, frozen=True):
    text: str = ""


class _Location(Struct, frozen=True):
    latitude: float
    longitude: float
    name: str = ""
    address: str = ""


class _Context(Struct, frozen=True):
    id: str = ""


class _System(Struct, frozen=True):
    type: str = ""
    wa_id: str = ""
    user_id: str = ""


class _Profile(Struct, frozen=True):
    name: str = ""
    username: str = ""


class WhatsAppContact(Struct, frozen=True):
    """A person: ``wa_id`` is the phone number, ``user_id`` the id that stays the same for people without one."""

    wa_id: str = ""
    user_id: str = ""
    profile: _Profile = _Profile()


class WhatsAppMessage(Struct, frozen=True, rename={"sender": "from"}):
    """A received message; which other fields it has depends on its type."""

    id: str
    type: str
    timestamp: str = "0"
    sender: str = ""
    from_user_id: str = ""
    text: _Text = _Text()
    image: _Media | None = None
    audio: _Media | None = None
    video: _Media | None = None
    document: _Media | None = None
    sticker: _Media | None = None
    reaction: _Reaction | None = None
    interactive: _Interactive = _Interactive()
    button: _TemplateButton = _TemplateButton()
    location: _Location | None = None
    contacts: list[dict[str, Any]] = []
    context: _Context = _Context()
    system: _System = _System()


class GraphError(Struct, frozen=True):
    """An error, of a call or of a sent message."""

    code: int = 0
    message: str = ""
    title: str = ""


class DeliveryReport(Struct, frozen=True):
    """The status of a sent message: sent, delivered, read or failed."""

    id: str
    status: str
    recipient_id: str = ""
    recipient_user_id: str = ""
    errors: tuple[GraphError, ...] = ()


class _Metadata(Struct, frozen=True):
    phone_number_id: str = ""


class WhatsAppValue(Struct, frozen=True):
    """The messages or reports of one business number."""

    metadata: _Metadata = _Metadata()
    contacts: tuple[WhatsAppContact, ...] = ()
    messages: tuple[WhatsAppMessage, ...] = ()
    statuses: tuple[DeliveryReport, ...] = ()


class _Change(Struct, frozen=True):
    field: str = ""
    value: msgspec.Raw = msgspec.Raw(b"{}")


class _Entry(Struct, frozen=True):
    changes: tuple[_Change, ...] = ()


class _Post(Struct, frozen=True):
    entry: tuple[_Entry, ...]
    object: Literal["whatsapp_business_account"]


def read_values(body: bytes, phone_number_id: str) -> list[WhatsAppValue]:
    """Return what a post has for one business number; raises `ValueError` for something else."""
    changes = [change for entry in msgspec.json.decode(body, type=_Post).entry for change in entry.changes]
    values = [msgspec.json.decode(one.value, type=WhatsAppValue) for one in changes if one.field == "messages"]
    return [value for value in values if value.metadata.phone_number_id == phone_number_id]


def find_contact(value: WhatsAppValue, message: WhatsAppMessage) -> WhatsAppContact:
    """Return the sender of a message with all their ids."""
    for contact in value.contacts:
        if (message.sender and message.sender == contact.wa_id) or (
            message.from_user_id and message.from_user_id == contact.user_id
        ):
            return contact
    if len(value.contacts) == 1 and not message.sender and not message.from_user_id:
        return value.contacts[0]
    return WhatsAppContact(message.sender, message.from_user_id)


def to_incoming(message: WhatsAppMessage, contact: WhatsAppContact, settings: WhatsAppSettings) -> Incoming | None:
    """Return what a person wrote, sent, pressed or marked; ``None`` for other messages."""
    phone, user = contact.wa_id or message.sender, contact.user_id or message.from_user_id
    ids = tuple(filter(None, (phone, user)))
    if not ids or message.type in {"unsupported", "ephemeral"}:
        return None
    name = contact.profile.name or contact.profile.username or ids[0]
    moved = message.system.wa_id if message.system.type == "user_changed_number" else ""
    if message.type == "system" and not moved:
        return None
    incoming = Incoming(
        external_id=message.id,
        address=Address(settings.name, moved or ids[0]),
        sender=Sender(ids[0], name, ids[1:]),
        at=datetime.fromtimestamp(int(message.timestamp), UTC),
        message_id=message.id,
        formerly=message.sender if moved else "",
    )
    return incoming if moved else _add_content(incoming, message)


class UploadKind(Struct, frozen=True):
    """The ``kind`` of message for a file, and the type of its upload; a link has neither."""

    kind: str = ""
    media_type: str = ""


class SentMessage(Struct, frozen=True):
    """The id of a message in the answer."""

    id: str


class SentMessages(Struct, frozen=True):
    """The answer to a sent message."""

    messages: tuple[SentMessage, ...]


class UploadedMedia(Struct, frozen=True):
    """The answer to an upload."""

    id: str


class MediaLocation(Struct, frozen=True):
    """The address of a file, which works for some minutes."""

    url: str
    mime_type: str = ""
    file_size: int = 0


class _Refusal(Struct, frozen=True):
    error: GraphError = GraphError()


def choose_upload(name: str, media_type: str, size: int) -> UploadKind:
    """Return how WhatsApp takes a file: types that it doesn't know are links, or plain text."""
    given = mimetypes.guess_type(name)[0] or media_type.partition(";")[0]
    if given not in _TYPES and (given.startswith("text/") or given in _TEXT_TYPES):
        given = "text/plain"
    kind = _TYPES.get(given, "")
    return UploadKind(kind, given) if kind and size <= _LIMITS[kind] else UploadKind()


def make_messages(content: Content, media: Sequence[dict[str, Any]], links: Sequence[str]) -> list[dict[str, Any]]:
    """Return the messages of a content with uploaded files; raises `Rejected` for a text that can't be sent."""
    if len(sanitize_text(content.text)) > TEXT_LIMIT:
        raise Rejected(f"a message has at most {TEXT_LIMIT} characters, and this one {len(content.text)}")
    text = convert_markdown(content.text, STARS)
    files = [dict(one) for one in media]
    captioned = files[0] if len(files) == 1 and files[0]["type"] != "audio" and not content.buttons else None
    messages: list[dict[str, Any]] = []
    if captioned is not None and text.strip() and len(text) <= _CAPTION:
        captioned[captioned["type"]] = {**captioned[captioned["type"]], "caption": text}
    elif text.strip():
        messages.append(_encode_interactive(text, content.buttons) if content.buttons else _encode_text(text))
    messages += [*files, *map(_encode_text, links)]
    if not messages:
        raise Rejected("a message without text can't be sent")
    if content.reply_to:
        messages[0]["context"] = {"message_id": content.reply_to}
    return messages


def make_templates(content: Content, settings: WhatsAppSettings) -> list[dict[str, Any]]:
    """Return a text as templates, whose parameters have neither line breaks nor several spaces."""
    labels = " / ".join(button.label for button in content.buttons)
    words = f"{convert_markdown(content.text, STARS)} {f'({labels})' if labels else ''}".split()
    pieces = [""]
    for word in words:
        for part in [word[start : start + _PARAMETER] for start in range(0, len(word), _PARAMETER)]:
            if len(pieces[-1]) + len(part) + 1 > _PARAMETER:
                pieces.append("")
            pieces[-1] = f"{pieces[-1]} {part}".strip()
    if not pieces[0]:
        raise Rejected("a message without text can't be sent")
    return [
        {
            "type": "template",
            "template": {
                "name": settings.template,
                "language": {"code": settings.language},
                "components": [{"type": "body", "parameters": [{"type": "text", "text": piece}]}],
            },
        }
        for piece in pieces
    ]


def read_code(answer: ApiAnswer) -> int:
    """Return the code of a refusal; -1 if there is none."""
    try:
        return msgspec.json.decode(answer.body, type=_Refusal).error.code
    except msgspec.DecodeError:
        return -1


class WindowClosed(Unreachable):
    """The chat takes only templates until the person writes again."""


def to_error(answer: ApiAnswer) -> PlatformError:
    """Return the error for a refused call."""
    code = read_code(answer)
    if code == CLOSED_CODE:
        return WindowClosed("the chat takes only templates until the person writes again")
    if answer.status == 401 or code in _BAD_ACCOUNT:
        return BadCredentials(f"WhatsApp doesn't accept the account: error {code}")
    if code == _PAIR_LIMIT:
        return SlowDown("too many messages to one person", retry_after=_PAIR_PAUSE, everywhere=False)
    if code in _TOO_MANY or answer.status == 429:
        return pause_of(answer)
    if code in _TEMPORARY or answer.status >= 500:
        return Unreachable(f"WhatsApp failed with {describe_error(answer)}")
    return Rejected(f"WhatsApp refuses it with {describe_error(answer)}")


def _add_content(incoming: Incoming, message: WhatsAppMessage) -> Incoming | None:
    if message.type == "reaction":
        if message.reaction is None or not message.reaction.emoji:  # taken away
            return None
        marked = message.reaction
        return msgspec.structs.replace(incoming, message_id=marked.message_id, reaction=marked.emoji)
    choice = message.interactive.button_reply or message.interactive.list_reply
    if choice is not None:
        return msgspec.structs.replace(incoming, button=choice.id, message_id=message.context.id)
    return msgspec.structs.replace(
        incoming, text=_describe(message), attachments=_list_attachments(message), reply_to=message.context.id
    )


def _get_media(message: WhatsAppMessage) -> _Media | None:
    found = getattr(message, message.type) if message.type in _KINDS else None
    return found if isinstance(found, _Media) else None


def _describe(message: WhatsAppMessage) -> str:
    if (media := _get_media(message)) is not None:
        return media.caption
    if message.location is not None:
        location = message.location
        return "\n".join(filter(None, (location.name, location.address, f"{location.latitude}, {location.longitude}")))
    if message.contacts:
        return msgspec.json.encode(message.contacts).decode()
    return message.text.body or message.button.text


def _list_attachments(message: WhatsAppMessage) -> tuple[Attachment, ...]:
    media = _get_media(message)
    if media is None:
        return ()
    media_type = media.mime_type.partition(";")[0]
    unique = media.sha256 if message.type == "sticker" else ""
    return (Attachment(media.id, _KINDS[message.type], media.filename, media_type, unique_id=unique),)


def _encode_text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": {"body": text, "preview_url": False}}


def _encode_interactive(text: str, buttons: Sequence[Button]) -> dict[str, Any]:
    """Return reply buttons if there are few and the text is short, else a list."""
    titles = [_cut(button.label, _BUTTON_LABEL) for button in buttons]
    if len(buttons) <= _MOST_BUTTONS and len(text) <= _BUTTON_TEXT and len(set(titles)) == len(titles):
        replies = [
            {"type": "reply", "reply": {"id": button.value, "title": title}}
            for button, title in zip(buttons, titles, strict=True)
        ]
        return _wrap_interactive("button", text, {"buttons": replies})
    rows = [_encode_row(number, button) for number, button in enumerate(buttons[:_MOST_ROWS], 1)]
    return _wrap_interactive("list", text, {"button": "Choose", "sections": [{"title": "Choices", "rows": rows}]})


def _wrap_interactive(kind: str, text: str, action: dict[str, Any]) -> dict[str, Any]:
    return {"type": "interactive", "interactive": {"type": kind, "body": {"text": text}, "action": action}}


def _encode_row(number: int, button: Button) -> dict[str, str]:
    if len(button.label) <= _ROW_TITLE:
        return {"id": button.value, "title": button.label}
    title = _cut(f"{number}. {button.label}", _ROW_TITLE)
    return {"id": button.value, "title": title, "description": _cut(button.label, _ROW_TEXT)}


def _cut(label: str, length: int) -> str:
    return label if len(label) <= length else f"{label[: length - 1]}…"

"""Posts of the Cloud API (Graph API v25.0) as updates and delivery reports, without I/O."""

from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Attachment, Incoming, Sender
from talaria.core.addresses import Address
from talaria.platforms.whatsapp.settings import WhatsAppSettings

_KINDS: dict[str, Literal["picture", "voice", "document", "sticker"]] = {
    "image": "picture",
    "audio": "voice",
    "video": "document",
    "document": "document",
    "sticker": "sticker",
}


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
        incoming, text=_describe(message), attachments=_attachments(message), reply_to=message.context.id
    )


def _media(message: WhatsAppMessage) -> _Media | None:
    found = getattr(message, message.type) if message.type in _KINDS else None
    return found if isinstance(found, _Media) else None


def _describe(message: WhatsAppMessage) -> str:
    if (media := _media(message)) is not None:
        return media.caption
    if message.location is not None:
        place = message.location
        return "\n".join(filter(None, (place.name, place.address, f"{place.latitude}, {place.longitude}")))
    if message.contacts:
        return msgspec.json.encode(message.contacts).decode()
    return message.text.body or message.button.text


def _attachments(message: WhatsAppMessage) -> tuple[Attachment, ...]:
    media = _media(message)
    if media is None:
        return ()
    media_type = media.mime_type.partition(";")[0]
    unique = media.sha256 if message.type == "sticker" else ""
    return (Attachment(media.id, _KINDS[message.type], media.filename, media_type, unique_id=unique),)

"""Translation between events and messages of Google Chat and the vocabulary, without I/O."""

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Attachment, Button, Content, Incoming, Sender
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, PlatformError, Rejected, Unreachable
from talaria.platforms.content import Notation, convert_markdown, sanitize_text
from talaria.platforms.http_api import ApiAnswer, describe_error, pause_of

TEXT_LIMIT = 28_000  # bytes; a whole message with its cards has 32,000
MARKUP = Notation(bold="*", italic="_", struck="~", link=r"<\2|\1>")
_BUTTON = "talaria_button"
_KEYS = uuid.UUID("0d9dbb3a-6a39-4a52-9a0b-5a7d1f3b6c11")


class ChatUser(Struct, rename="camel"):
    """A person or an app."""

    name: str
    display_name: str = ""
    type: str = "HUMAN"


class ChatSpace(Struct, rename="camel"):
    """A direct message, a group chat or a space."""

    name: str
    space_type: str = ""
    type: str = ""
    display_name: str = ""
    space_threading_state: str = ""

    @property
    def is_direct(self) -> bool:
        """Return whether it is a chat with one person."""
        return self.space_type == "DIRECT_MESSAGE" or self.type == "DM"

    @property
    def is_threaded(self) -> bool:
        """Return whether messages are in threads."""
        if self.is_direct or self.space_type == "GROUP_CHAT":
            return False
        return self.space_threading_state != "UNTHREADED_MESSAGES"


class ChatThread(Struct):
    """A thread of a space."""

    name: str = ""


class ChatDataRef(Struct, rename="camel"):
    """Location of an uploaded file."""

    resource_name: str = ""


class ChatFile(Struct, rename="camel"):
    """An attachment of a message; one from Drive has no data here."""

    content_name: str = ""
    content_type: str = ""
    attachment_data_ref: ChatDataRef | None = None


class ChatMention(Struct):
    """The user of a mention."""

    user: ChatUser | None = None


class ChatAnnotation(Struct, rename="camel"):
    """A mention or a command in a text."""

    type: str = ""
    user_mention: ChatMention | None = None


class ChatMessage(Struct, rename="camel"):
    """A message; ``argument_text`` is its text without mentions of us."""

    name: str = ""
    sender: ChatUser | None = None
    create_time: datetime | None = None
    text: str = ""
    argument_text: str | None = None
    thread: ChatThread = msgspec.field(default_factory=ChatThread)
    annotations: tuple[ChatAnnotation, ...] = ()
    attachment: tuple[ChatFile, ...] = ()
    slash_command: dict[str, Any] | None = None


class ChatParameter(Struct):
    """A value of a pressed button."""

    key: str = ""
    value: str = ""


class ChatAction(Struct):
    """A pressed button."""

    parameters: tuple[ChatParameter, ...] = ()


class ChatEvent(Struct, rename="camel"):
    """A post of Google Chat: a message, a pressed button or something else."""

    type: str
    event_time: datetime
    space: ChatSpace | None = None
    message: ChatMessage | None = None
    user: ChatUser | None = None
    action: ChatAction | None = None


def read_event(body: bytes) -> ChatEvent:
    """Return the event of a post; raises `ValueError` if it isn't one of Google Chat."""
    return msgspec.json.decode(body, type=ChatEvent)


def last_part(name: str) -> str:
    """Return the id at the end of a resource name."""
    return name.rpartition("/")[2]


def to_incoming(event: ChatEvent, platform: str) -> Incoming | None:
    """Return what a person wrote, sent or pressed; ``None`` for other events."""
    message, user, space = event.message, event.user, event.space
    if message is None or user is None or space is None or user.type == "BOT":
        return None
    button = next((one.value for one in event.action.parameters if one.key == _BUTTON), "") if event.action else ""
    if not (event.type == "MESSAGE" or (event.type == "CARD_CLICKED" and button)):
        return None
    is_command = message.slash_command is not None
    text = message.text if is_command or message.argument_text is None else message.argument_text
    return Incoming(
        external_id=f"{message.name}:{user.name}:{event.event_time.isoformat()}" if button else message.name,
        address=_to_address(space, message, platform),
        sender=Sender(last_part(user.name), user.display_name or last_part(user.name)),
        at=event.event_time if button else message.create_time or event.event_time,
        text="" if button else text.strip(),
        attachments=() if button else tuple(map(_to_attachment, filter(_is_uploaded, message.attachment))),
        message_id=last_part(message.name),
        chat_name=space.display_name,
        addressed=space.is_direct or is_command or bool(button) or any(map(_mentions_app, message.annotations)),
        button=button,
    )


def _to_address(space: ChatSpace, message: ChatMessage, platform: str) -> Address:
    chat_id = last_part(space.name)
    if space.is_direct:
        return Address(platform, chat_id)
    if space.is_threaded:
        return Address(platform, chat_id, "thread", last_part(message.thread.name))
    return Address(platform, chat_id, "group")


def _mentions_app(annotation: ChatAnnotation) -> bool:
    user = annotation.user_mention.user if annotation.user_mention else None
    return annotation.type == "USER_MENTION" and user is not None and user.type == "BOT"


def _is_uploaded(file: ChatFile) -> bool:
    return bool(file.attachment_data_ref and file.attachment_data_ref.resource_name)


def _to_attachment(file: ChatFile) -> Attachment:
    assert file.attachment_data_ref is not None
    is_picture = file.content_type.startswith("image/")
    reference = file.attachment_data_ref.resource_name
    return Attachment(reference, "picture" if is_picture else "document", file.content_name, file.content_type)


def make_key(to: Address, key: str) -> str:
    """Return the request id of a message: the same one again gives the same message."""
    return str(uuid.uuid5(_KEYS, f"{to.chat_id}\n{to.thread_id}\n{key}"))


def make_message(content: Content, pictures: Sequence[tuple[str, str]], links: Sequence[str]) -> dict[str, Any]:
    """Return the message of a content; ``pictures`` are names and addresses. Raises `Rejected` for a text that can't be
    sent.
    """
    text = sanitize_text(content.text)
    if (size := len(text.encode())) > TEXT_LIMIT:
        raise Rejected(f"a message has at most {TEXT_LIMIT} bytes, and this one {size}")
    text = "\n".join(filter(None, (convert_markdown(text, MARKUP) if text.strip() else "", *links)))
    if not text and not pictures:
        raise Rejected("a message without text can't be sent")
    widgets: list[dict[str, Any]] = [{"image": {"imageUrl": url, "altText": name}} for name, url in pictures]
    if content.buttons:
        widgets.append({"buttonList": {"buttons": [_encode_button(one) for one in content.buttons]}})
    cards = [{"cardId": "talaria", "card": {"sections": [{"widgets": widgets}]}}] if widgets else []
    return {"text": text, "cardsV2": cards}


def _encode_button(button: Button) -> dict[str, Any]:
    action = {"function": "choose", "parameters": [{"key": _BUTTON, "value": button.value}]}
    return {"text": button.label, "onClick": {"action": action}}


def to_error(answer: ApiAnswer) -> PlatformError:
    """Return the error for a refused call."""
    if answer.status == 401:
        return BadCredentials("Google Chat doesn't accept the service account")
    if answer.status == 429:
        return pause_of(answer)
    if 400 <= answer.status < 500:
        return Rejected(f"Google Chat refuses it with {describe_error(answer)}")
    return Unreachable(f"Google Chat failed with {describe_error(answer)}")

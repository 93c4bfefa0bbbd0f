"""Wire types of the Bot API, as far as we read them."""

import logging
from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct, field

from talaria.core.errors import Unreachable

log = logging.getLogger(__name__)


class TelegramUser(Struct, frozen=True, omit_defaults=True):
    """A person or a bot."""

    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str = ""
    username: str = ""


class TelegramChat(Struct, frozen=True, omit_defaults=True):
    """A private chat, a group or a channel."""

    id: int
    type: str
    title: str = ""
    username: str = ""
    first_name: str = ""
    last_name: str = ""


class TelegramEntity(Struct, frozen=True, omit_defaults=True):
    """A marked part of a text; positions are in UTF-16 code units."""

    type: str
    offset: int
    length: int
    url: str = ""
    user: TelegramUser | None = None
    language: str = ""


class TelegramFile(Struct, frozen=True, omit_defaults=True):
    """A file; only some kinds have a name and a type."""

    file_id: str
    file_unique_id: str
    file_size: int = 0
    file_name: str = ""
    mime_type: str = ""


class TelegramDocument(TelegramFile, frozen=True):
    """A file that was sent as such."""


class VideoNote(TelegramFile, frozen=True):
    """A round video."""


class PhotoSize(TelegramFile, frozen=True):
    """A photo in one of its sizes."""

    width: int = 0
    height: int = 0


class TelegramSticker(TelegramFile, frozen=True):
    """A sticker."""

    is_animated: bool = False
    is_video: bool = False
    emoji: str = ""
    set_name: str = ""


class Location(Struct, frozen=True):
    """A point on a map."""

    latitude: float | int
    longitude: float | int


class Venue(Struct, frozen=True):
    """A named place."""

    location: Location
    title: str
    address: str


class TelegramContact(Struct, frozen=True, omit_defaults=True):
    """A phone number with a name."""

    phone_number: str
    first_name: str
    last_name: str = ""


class PollOption(Struct, frozen=True):
    """A possible answer of a poll."""

    text: str


class Poll(Struct, frozen=True):
    """A poll."""

    question: str
    options: Sequence[PollOption] = ()


class Dice(Struct, frozen=True):
    """A random value."""

    emoji: str
    value: int


class TelegramMessage(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message; ``date`` is zero if its content is no longer accessible."""

    message_id: int
    chat: TelegramChat
    date: int = 0
    edit_date: int = 0
    message_thread_id: int = 0
    is_topic_message: bool = False
    from_user: TelegramUser | None = field(name="from", default=None)
    sender_chat: TelegramChat | None = None
    reply_to_message: "TelegramMessage | None" = None
    forum_topic_created: dict[str, object] | None = None
    media_group_id: str = ""
    migrate_to_chat_id: int = 0
    migrate_from_chat_id: int = 0
    text: str = ""
    entities: tuple[TelegramEntity, ...] = ()
    caption: str = ""
    caption_entities: tuple[TelegramEntity, ...] = ()
    photo: tuple[PhotoSize, ...] = ()
    voice: TelegramFile | None = None
    sticker: TelegramSticker | None = None
    animation: TelegramFile | None = None
    document: TelegramDocument | None = None
    audio: TelegramFile | None = None
    video: TelegramFile | None = None
    video_note: VideoNote | None = None
    venue: Venue | None = None
    location: Location | None = None
    contact: TelegramContact | None = None
    poll: Poll | None = None
    dice: Dice | None = None


class CallbackQuery(Struct, frozen=True, omit_defaults=True):
    """A pressed button."""

    id: str
    from_user: TelegramUser = field(name="from")
    message: TelegramMessage | None = None
    data: str = ""


class Reaction(Struct, frozen=True, omit_defaults=True):
    """A mark on a message; only the ``type`` named emoji has one."""

    type: str
    emoji: str = ""


class ReactionChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The marks of a person on a message, before and now."""

    chat: TelegramChat
    message_id: int
    date: int
    user: TelegramUser | None = None
    actor_chat: TelegramChat | None = None
    old_reaction: tuple[Reaction, ...] = ()
    new_reaction: tuple[Reaction, ...] = ()


class TelegramUpdate(Struct, frozen=True, omit_defaults=True):
    """A message, a pressed button or a reaction."""

    update_id: int
    message: TelegramMessage | None = None
    edited_message: TelegramMessage | None = None
    channel_post: TelegramMessage | None = None
    edited_channel_post: TelegramMessage | None = None
    callback_query: CallbackQuery | None = None
    message_reaction: ReactionChange | None = None


class WebhookInfo(Struct, frozen=True):
    """The state of a webhook."""

    url: str = ""
    pending_update_count: int = 0
    last_error_message: str = ""


class ForumTopic(Struct, frozen=True):
    """A topic."""

    message_thread_id: int


class FilePath(Struct, frozen=True):
    """The path of a file that can be downloaded."""

    file_path: str


def decode_update(source: bytes | Raw) -> TelegramUpdate | None:
    """Return an update, or ``None`` if it is unreadable."""
    try:
        return msgspec.json.decode(source, type=TelegramUpdate)
    except msgspec.MsgspecError as error:
        log.warning("skipping an unreadable Telegram update: %s", error)
        return None


class _UpdateNumber(Struct, frozen=True):
    """The number of an update."""

    update_id: int


_decode_number = msgspec.json.Decoder(_UpdateNumber).decode


def decode_updates(sources: Sequence[Raw]) -> list[TelegramUpdate]:
    """Return updates, with an empty one for each unreadable one: it has to be confirmed with the others."""
    try:
        return [decode_update(source) or TelegramUpdate(_decode_number(source).update_id) for source in sources]
    except msgspec.MsgspecError as error:
        raise Unreachable(f"the answer is not from the Bot API: {error}") from error

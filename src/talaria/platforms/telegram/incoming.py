"""Translate Telegram's updates."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby

from msgspec import Struct, structs

from talaria.contracts.platform import Attachment, Incoming, Sender
from talaria.core.addresses import Address, ChatType
from talaria.platforms.telegram.settings import GroupMode
from talaria.platforms.telegram.wire import (
    CallbackQuery,
    PhotoSize,
    ReactionChange,
    TelegramChat,
    TelegramDocument,
    TelegramEntity,
    TelegramFile,
    TelegramMessage,
    TelegramSticker,
    TelegramUpdate,
    TelegramUser,
    VideoNote,
)

_PICTURES = frozenset({"image/jpeg", "image/png", "image/webp", "image/gif"})
_QUOTE = "> "
_MARKERS = {"bold": "**", "italic": "_", "strikethrough": "~~", "code": "`"}
ALLOWED_UPDATES = [
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "callback_query",
    "message_reaction",
]
_CHAT_TYPES: dict[str, ChatType] = {
    "private": "private",
    "group": "group",
    "supergroup": "group",
    "channel": "channel",
}
_AFTER_NAME = re.compile(r"^[\s,:;]+")


def attachments_of(message: TelegramMessage) -> tuple[Attachment, ...]:
    """Return the files of a message; of a photo its largest size."""
    if message.photo:
        return (_to_photo_attachment(max(message.photo, key=lambda size: size.width * size.height)),)
    if message.voice:
        return (_to_voice_attachment(message.voice),)
    if message.sticker:
        return (_to_sticker_attachment(message.sticker),)
    # An animation also comes as a document, for clients that don't support it.
    file = message.animation or message.document or message.audio or message.video or message.video_note
    return (_to_file_attachment(file),) if file else ()


def describe_content(message: TelegramMessage) -> str:
    """Return a description of content that has neither text nor a readable file."""
    if message.sticker:
        return message.sticker.emoji or ""
    if message.venue:
        venue, location = message.venue, message.venue.location
        return f"[place: {venue.title}, {venue.address} ({location.latitude}, {location.longitude})]"
    if message.location:
        return f"[location: {message.location.latitude}, {message.location.longitude}]"
    if message.contact:
        name = " ".join(filter(None, [message.contact.first_name, message.contact.last_name]))
        return f"[contact: {name}, {message.contact.phone_number}]"
    if message.poll:
        return f"[poll: {message.poll.question} {' / '.join(option.text for option in message.poll.options)}]"
    if message.dice:
        return f"[{message.dice.emoji} {message.dice.value}]"
    return ""


def _to_photo_attachment(photo: PhotoSize) -> Attachment:
    name = f"photo-{photo.file_unique_id}.jpg"
    return Attachment(photo.file_id, "picture", name, "image/jpeg", photo.file_size)


def _to_voice_attachment(voice: TelegramFile) -> Attachment:
    name = f"voice-{voice.file_unique_id}.ogg"
    return Attachment(voice.file_id, "voice", name, voice.mime_type or "audio/ogg", voice.file_size)


def _to_sticker_attachment(sticker: TelegramSticker) -> Attachment:
    suffix, media_type = "webp", "image/webp"
    if sticker.is_animated:
        suffix, media_type = "tgs", "application/x-tgsticker"
    elif sticker.is_video:
        suffix, media_type = "webm", "video/webm"
    unique_id = sticker.file_unique_id
    collection = f"from the set {sticker.set_name}" if sticker.set_name else ""
    hint = " ".join(filter(None, [sticker.emoji, collection]))
    name = f"{unique_id}.{suffix}"
    return Attachment(sticker.file_id, "sticker", name, media_type, sticker.file_size, unique_id, hint)


def _to_file_attachment(file: TelegramFile) -> Attachment:
    media_type = "video/mp4" if isinstance(file, VideoNote) else file.mime_type
    kind = "picture" if isinstance(file, TelegramDocument) and media_type in _PICTURES else "document"
    name = file.file_name or f"file-{file.file_unique_id}.{media_type.rpartition('/')[2] or 'bin'}"
    return Attachment(file.file_id, kind, name, media_type, file.file_size)  # type: ignore[arg-type]


def as_markdown(text: str, text_entities: Sequence[TelegramEntity]) -> str:
    """Return a text with its entities as Markdown; existing text is not escaped.

    Entities that exceed the text, or have no counterpart, are left out.
    """
    data = text.encode("utf-16-le", "surrogatepass")
    inserts: list[tuple[int, int, int, str]] = []
    for text_entity in text_entities:
        start, end = text_entity.offset, text_entity.offset + text_entity.length
        if not 0 <= start < end <= len(data) // 2:
            continue
        opening, closing = _choose_markdown_markers(text_entity, utf16_slice(text, start, end))
        if opening:
            # At one position, ends come before starts; the longer one starts first and ends last.
            inserts.append((start, 1, -text_entity.length, opening))
            inserts.append((end, 0, text_entity.length, closing))
        if opening == _QUOTE:
            inserts += [(position, 1, -text_entity.length, _QUOTE) for position in _find_line_starts(text, start, end)]
    pieces = []
    at = 0
    for position, _, _, inserted in sorted(inserts, key=lambda one: one[:3]):
        pieces += [_decode_utf16(data[at * 2 : position * 2]), inserted]
        at = position
    return "".join([*pieces, _decode_utf16(data[at * 2 :])])


def utf16_slice(text: str, start: int, end: int | None = None) -> str:
    """Return a part of a text between positions in UTF-16 code units."""
    data = text.encode("utf-16-le", "surrogatepass")
    return _decode_utf16(data[start * 2 : None if end is None else end * 2])


def _find_line_starts(text: str, start: int, end: int) -> list[int]:
    """Return the line starts between two positions, except the first."""
    starts = []
    for line in utf16_slice(text, start, end).split("\n")[:-1]:
        start += len(line.encode("utf-16-le")) // 2 + 1
        starts.append(start)
    return starts


def _decode_utf16(data: bytes) -> str:
    return data.decode("utf-16-le", "replace")


def _choose_markdown_markers(text_entity: TelegramEntity, shown: str) -> tuple[str, str]:
    match text_entity.type:
        case "text_link" if text_entity.url:
            return "[", f"]({text_entity.url})"
        case "pre":
            fence = "`" * max(3, _measure_longest_backtick_run(shown) + 1)
            return f"{fence}{text_entity.language or ''}\n", f"\n{fence}"
        case "code":
            ticks = "`" * (_measure_longest_backtick_run(shown) + 1)
            space = " " if "`" in shown else ""
            return ticks + space, space + ticks
        case "blockquote" | "expandable_blockquote":
            return _QUOTE, ""
        case kind:
            return _MARKERS.get(kind, ""), _MARKERS.get(kind, "")


def _measure_longest_backtick_run(text: str) -> int:
    longest = run_length = 0
    for character in text:
        run_length = run_length + 1 if character == "`" else 0
        longest = max(longest, run_length)
    return longest


class BotIdentity(Struct, frozen=True):
    """The bot's identity; ``posted`` has the topics of our known messages, by chat and id."""

    platform: str
    user_id: int
    username: str
    group_mode: GroupMode = "reply"
    posted: Mapping[tuple[str, str], str] = {}


class ParsedUpdate(Struct, frozen=True):
    """One or more updates taken together; without ``incoming`` there is nothing for us."""

    last_update: int
    incoming: Incoming | None
    callback: str = ""


def read_updates(updates: Sequence[TelegramUpdate], identity: BotIdentity) -> list[ParsedUpdate]:
    """Translate updates in order; adjacent parts of an album are merged."""
    parsed_updates = []
    for _, group in groupby(enumerate(updates), key=lambda one: album_key(one[1]) or one[0]):
        album = [update for _, update in group]
        read = [read_update(update, identity) for update in album]
        callback = album[0].callback_query.id if album[0].callback_query else ""
        known = [one for one in read if one is not None]
        parsed_updates.append(ParsedUpdate(album[-1].update_id, _merge_album(known) if known else None, callback))
    return parsed_updates


def album_key(update: TelegramUpdate) -> str:
    """Return the common key of an album's parts, nothing for other updates."""
    message = update.message or update.channel_post
    return f"{message.chat.id}:{message.media_group_id}" if message and message.media_group_id else ""


def read_update(update: TelegramUpdate, identity: BotIdentity) -> Incoming | None:
    """Translate one update; ``None`` if it doesn't concern us."""
    if update.callback_query is not None:
        return _read_callback(update.update_id, update.callback_query, identity)
    if update.message_reaction is not None:
        return _read_reaction(update.update_id, update.message_reaction, identity)
    message = update.message or update.channel_post
    edited = update.edited_message or update.edited_channel_post
    if message is not None and (message.migrate_to_chat_id or message.migrate_from_chat_id):
        return _read_migration(update.update_id, message, identity)
    if message is not None:
        return _read_message(update.update_id, message, identity)
    # Telegram also reports changes that nobody made or sees, and each step of a live location.
    if edited is not None and edited.edit_date and edited.location is None:
        incoming = _read_message(update.update_id, edited, identity)
        return structs.replace(incoming, edited=True, at=_read_time(edited.edit_date)) if incoming else None
    return None


def _merge_album(parts: list[Incoming]) -> Incoming:
    """Return an album as one update; its id names every part, so that a later part counts as new."""
    first = parts[0]
    if len(parts) == 1:
        return first
    return structs.replace(
        first,
        external_id="+".join(part.external_id for part in parts),
        text="\n\n".join(filter(None, (part.text for part in parts))),
        attachments=tuple(attachment for part in parts for attachment in part.attachments),
        addressed=any(part.addressed for part in parts),
    )


def _read_callback(update_id: int, query: CallbackQuery, identity: BotIdentity) -> Incoming | None:
    message = query.message
    if message is None or not query.data:
        return None
    return Incoming(
        external_id=f"{update_id}:{query.id}",
        address=_to_address(message.chat, message, identity),
        sender=_to_user_sender(query.from_user),
        at=datetime.now(UTC),  # a callback has no time
        message_id=str(message.message_id),
        chat_name=_choose_chat_name(message.chat),
        button=query.data,
    )


def _read_reaction(update_id: int, changed: ReactionChange, identity: BotIdentity) -> Incoming | None:
    """Return the reaction to a message; Telegram reports neither the message's author nor its topic."""
    before = {one.emoji for one in changed.old_reaction if one.type == "emoji"}
    now = [one.emoji for one in changed.new_reaction if one.type == "emoji"]
    added = [emoji for emoji in now if emoji not in before]
    sender = _to_user_sender(changed.user) if changed.user else None
    if changed.actor_chat is not None:
        sender = Sender(str(changed.actor_chat.id), _choose_chat_name(changed.actor_chat))
    if not added or sender is None:
        return None
    chat, message_id = changed.chat, str(changed.message_id)
    topic = identity.posted.get((str(chat.id), message_id))
    return Incoming(
        external_id=f"{update_id}:{chat.id}:{message_id}",
        address=_to_topic_address(chat, topic or "", identity),
        sender=sender,
        at=_read_time(changed.date),
        message_id=message_id,
        chat_name=_choose_chat_name(chat),
        addressed=topic is not None or chat.type == "private" or identity.group_mode == "free",
        reaction=added[-1],
    )


def _read_migration(update_id: int, message: TelegramMessage, identity: BotIdentity) -> Incoming:
    """Return a group's new id: it is reported in both the old and the new chat."""
    before = str(message.migrate_from_chat_id or message.chat.id)
    return Incoming(
        external_id=f"{update_id}:{message.chat.id}:{message.message_id}",
        address=Address(identity.platform, str(message.migrate_to_chat_id or message.chat.id), "group"),
        sender=Sender(before, _choose_chat_name(message.chat)),
        at=_read_time(message.date),
        chat_name=_choose_chat_name(message.chat),
        addressed=False,
        formerly=before,
    )


def _read_message(update_id: int, message: TelegramMessage, identity: BotIdentity) -> Incoming | None:
    sender = _to_sender(message)
    attachments = attachments_of(message)
    raw_text = message.text or message.caption or ""
    if sender is None or not (raw_text or attachments or describe_content(message)):
        return None
    text, entities = _strip_bot_name(raw_text, message.entities or message.caption_entities, identity)
    replied = _find_replied_message(message)
    return Incoming(
        external_id=f"{update_id}:{message.chat.id}:{message.message_id}",
        address=_to_address(message.chat, message, identity),
        sender=sender,
        at=_read_time(message.date),
        text=as_markdown(text, entities) or describe_content(message),
        attachments=attachments,
        message_id=str(message.message_id),
        reply_to=str(replied.message_id) if replied else "",
        chat_name=_choose_chat_name(message.chat),
        addressed=_is_addressed(message, identity),
    )


def _to_address(chat: TelegramChat, message: TelegramMessage, identity: BotIdentity) -> Address:
    topic = str(message.message_thread_id) if message.is_topic_message else ""
    return _to_topic_address(chat, topic, identity)


def _to_topic_address(chat: TelegramChat, topic: str, identity: BotIdentity) -> Address:
    """Return an address in a chat. A topic in a group is separate; one in a private chat stays private."""
    chat_type = _CHAT_TYPES.get(chat.type, "group")
    if topic and chat_type == "group":
        chat_type = "thread"
    return Address(identity.platform, str(chat.id), chat_type, topic)


def _to_sender(message: TelegramMessage) -> Sender | None:
    """Return the author of a message, ``None`` for other bots.

    A person who writes in the name of a chat is that chat: all anonymous administrators share one user.
    """
    if message.sender_chat is not None:
        return Sender(str(message.sender_chat.id), _choose_chat_name(message.sender_chat))
    if message.from_user is None:
        return Sender(str(message.chat.id), _choose_chat_name(message.chat))
    return None if message.from_user.is_bot else _to_user_sender(message.from_user)


def _to_user_sender(user: TelegramUser) -> Sender:
    return Sender(str(user.id), " ".join(filter(None, [user.first_name, user.last_name])))


def _choose_chat_name(chat: TelegramChat) -> str:
    return chat.title or " ".join(filter(None, [chat.first_name, chat.last_name])) or chat.username or ""


def _find_replied_message(message: TelegramMessage) -> TelegramMessage | None:
    """Return the message being answered; in a topic every other message answers the one that opened it."""
    replied = message.reply_to_message
    if replied is None or replied.forum_topic_created is not None:
        return None
    opening = message.is_topic_message and replied.message_id == message.message_thread_id
    return None if opening else replied


def _is_addressed(message: TelegramMessage, identity: BotIdentity) -> bool:
    if message.chat.type == "private" or identity.group_mode == "free":
        return True
    if any(_mentions_bot(message, entity, identity) for entity in _list_entities(message)):
        return True
    replied = _find_replied_message(message)
    if identity.group_mode == "mention" or replied is None or replied.from_user is None:
        return False
    return replied.from_user.id == identity.user_id


def _mentions_bot(message: TelegramMessage, entity: TelegramEntity, identity: BotIdentity) -> bool:
    if entity.type == "text_mention":
        return entity.user is not None and entity.user.id == identity.user_id
    shown = _get_entity_text(message.text or message.caption or "", entity).lower()
    if entity.type == "mention":
        return shown == f"@{identity.username.lower()}"
    # A command without a bot name is sent to every bot in a group that may see it.
    return entity.type == "bot_command" and shown.partition("@")[2] in ("", identity.username.lower())


def _list_entities(message: TelegramMessage) -> Sequence[TelegramEntity]:
    return message.entities or message.caption_entities


def _get_entity_text(text: str, entity: TelegramEntity) -> str:
    return utf16_slice(text, entity.offset, entity.offset + entity.length)


def _strip_bot_name(
    text: str, entities: Sequence[TelegramEntity], identity: BotIdentity
) -> tuple[str, Sequence[TelegramEntity]]:
    """Remove our name where it only addresses us: at the beginning, or after a command."""
    if not entities or entities[0].offset != 0:
        return text, entities
    first = entities[0]
    name = f"@{identity.username.lower()}"
    shown = _get_entity_text(text, first)
    rest = utf16_slice(text, first.length)
    if first.type == "mention" and shown.lower() == name:
        remaining = _AFTER_NAME.sub("", rest)
        return (
            (remaining, _shift_entities(entities[1:], first.length + len(rest) - len(remaining)))
            if remaining
            else (text, entities)
        )
    if first.type == "bot_command" and shown.lower().endswith(name):
        return shown[: -len(name)] + rest, _shift_entities(entities[1:], len(name))
    return text, entities


def _shift_entities(entities: Sequence[TelegramEntity], distance: int) -> Sequence[TelegramEntity]:
    """Return the entities of a text whose beginning was shortened by so many UTF-16 code units."""
    return [structs.replace(one, offset=one.offset - distance) for one in entities]


def _read_time(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)

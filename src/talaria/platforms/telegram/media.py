"""Attachments of a Telegram message, and content described in words."""

from telegram import Animation, Audio, Document, Message, PhotoSize, Sticker, Video, VideoNote, Voice

from talaria.contracts.platform import Attachment

_PICTURES = frozenset({"image/jpeg", "image/png", "image/webp", "image/gif"})


def attachments_of(message: Message) -> tuple[Attachment, ...]:
    """Return the files of a message; of a photo its largest size."""
    if message.photo:
        return (_photo_attachment(max(message.photo, key=lambda size: size.width * size.height)),)
    if message.voice:
        return (_voice_attachment(message.voice),)
    if message.sticker:
        return (_sticker_attachment(message.sticker),)
    # An animation also comes as a document, for clients that don't support it.
    file = message.animation or message.document or message.audio or message.video or message.video_note
    return (_file_attachment(file),) if file else ()


def describe_content(message: Message) -> str:
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


def _photo_attachment(photo: PhotoSize) -> Attachment:
    name = f"photo-{photo.file_unique_id}.jpg"
    return Attachment(photo.file_id, "picture", name, "image/jpeg", photo.file_size or 0)


def _voice_attachment(voice: Voice) -> Attachment:
    name = f"voice-{voice.file_unique_id}.ogg"
    return Attachment(voice.file_id, "voice", name, voice.mime_type or "audio/ogg", voice.file_size or 0)


def _sticker_attachment(sticker: Sticker) -> Attachment:
    suffix, media_type = "webp", "image/webp"
    if sticker.is_animated:
        suffix, media_type = "tgs", "application/x-tgsticker"
    elif sticker.is_video:
        suffix, media_type = "webm", "video/webm"
    unique_id = sticker.file_unique_id
    collection = f"from the set {sticker.set_name}" if sticker.set_name else ""
    hint = " ".join(filter(None, [sticker.emoji, collection]))
    name = f"{unique_id}.{suffix}"
    return Attachment(sticker.file_id, "sticker", name, media_type, sticker.file_size or 0, unique_id, hint)


def _file_attachment(file: Animation | Document | Audio | Video | VideoNote) -> Attachment:
    original_name = None if isinstance(file, VideoNote) else file.file_name
    media_type = ("video/mp4" if isinstance(file, VideoNote) else file.mime_type) or ""
    kind = "picture" if isinstance(file, Document) and media_type in _PICTURES else "document"
    name = original_name or f"file-{file.file_unique_id}.{media_type.rpartition('/')[2] or 'bin'}"
    return Attachment(file.file_id, kind, name, media_type, file.file_size or 0)  # type: ignore[arg-type]

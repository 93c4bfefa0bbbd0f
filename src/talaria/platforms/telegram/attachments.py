"""What hangs on a Telegram message: files, and things that only have words here."""

from telegram import Animation, Audio, Document, Message, PhotoSize, Sticker, Video, VideoNote, Voice

from talaria.contracts.platform import Attachment

_PICTURES = frozenset({"image/jpeg", "image/png", "image/webp", "image/gif"})


def attachments_of(message: Message) -> tuple[Attachment, ...]:
    """Return the files of a message: of a photo its largest size."""
    if message.photo:
        return (_picture(max(message.photo, key=lambda size: size.width * size.height)),)
    if message.voice:
        return (_voice(message.voice),)
    if message.sticker:
        return (_sticker(message.sticker),)
    # An animation comes as a document too, for programs that do not know it.
    file = message.animation or message.document or message.audio or message.video or message.video_note
    return (_file(file),) if file else ()


def words_for(message: Message) -> str:
    """Return in words what has neither text nor a file that could be read."""
    if message.sticker:
        return message.sticker.emoji or ""
    if message.venue:
        place = message.venue.location
        return f"[place: {message.venue.title}, {message.venue.address} ({place.latitude}, {place.longitude})]"
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


def _picture(photo: PhotoSize) -> Attachment:
    name = f"photo-{photo.file_unique_id}.jpg"
    return Attachment(photo.file_id, "picture", name, "image/jpeg", photo.file_size or 0)


def _voice(voice: Voice) -> Attachment:
    name = f"voice-{voice.file_unique_id}.ogg"
    return Attachment(voice.file_id, "voice", name, voice.mime_type or "audio/ogg", voice.file_size or 0)


def _sticker(sticker: Sticker) -> Attachment:
    ending, media_type = "webp", "image/webp"
    if sticker.is_animated:
        ending, media_type = "tgs", "application/x-tgsticker"
    elif sticker.is_video:
        ending, media_type = "webm", "video/webm"
    unique_id = sticker.file_unique_id
    collection = f"from the set {sticker.set_name}" if sticker.set_name else ""
    hint = " ".join(filter(None, [sticker.emoji, collection]))
    name = f"{unique_id}.{ending}"
    return Attachment(sticker.file_id, "sticker", name, media_type, sticker.file_size or 0, unique_id, hint)


def _file(file: Animation | Document | Audio | Video | VideoNote) -> Attachment:
    given = None if isinstance(file, VideoNote) else file.file_name
    media_type = ("video/mp4" if isinstance(file, VideoNote) else file.mime_type) or ""
    kind = "picture" if isinstance(file, Document) and media_type in _PICTURES else "document"
    name = given or f"file-{file.file_unique_id}.{media_type.rpartition('/')[2] or 'bin'}"
    return Attachment(file.file_id, kind, name, media_type, file.file_size or 0)  # type: ignore[arg-type]

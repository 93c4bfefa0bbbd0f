"""Messages: texts and files, sent by upload or by id, alone or in an album, edited and deleted."""

from typing import Any

from talaria.testing.telegram_server.chat import ChatState
from talaria.testing.telegram_server.entities import units
from talaria.testing.telegram_server.files import LARGEST_DOWNLOAD, Kind, Upload
from talaria.testing.telegram_server.markup import read_text
from talaria.testing.telegram_server.messages import Message
from talaria.testing.telegram_server.methods.base import (
    LONGEST_TEXT,
    AnySending,
    Captioned,
    Method,
    Parameters,
    Sending,
    author_of,
    destination,
    inline,
    post,
    read_caption,
    read_markup,
)
from talaria.testing.telegram_server.parts import (
    InlineKeyboardMarkup,
    InputMedia,
    LinkPreviewOptions,
    MessageEntity,
    Wire,
)
from talaria.testing.telegram_server.refusals import bad_request
from talaria.testing.telegram_server.world import World

_LARGEST_ALBUM = 10
_NOT_MODIFIED = (
    "message is not modified: specified new message content and reply markup are exactly the same as a current content"
    " and reply markup of the message"
)


class SendPhoto(Captioned, frozen=True, kw_only=True):
    """A picture."""

    photo: Upload | str
    show_caption_above_media: bool = False
    has_spoiler: bool = False


class SendDocument(Captioned, frozen=True, kw_only=True):
    """A file."""

    document: Upload | str
    thumbnail: Upload | str | None = None
    disable_content_type_detection: bool = False


class SendVoice(Captioned, frozen=True, kw_only=True):
    """A voice message; ``duration`` is in seconds."""

    voice: Upload | str
    duration: int = 0


class SendSticker(Sending, frozen=True, kw_only=True):
    """A sticker."""

    sticker: Upload | str
    emoji: str = ""


class SendMediaGroup(AnySending, frozen=True, kw_only=True):
    """An album."""

    media: list[InputMedia]
    attached: dict[str, Upload]

    def file(self, one: InputMedia) -> Upload | str:
        """Return the file that an item means: one of this request, or the id of a former one."""
        if not one.media.startswith("attach://"):
            return one.media
        name = one.media.removeprefix("attach://")
        if name not in self.attached:
            raise bad_request(f"there is no file with the name {name} in the request")
        return self.attached[name]


class GetFile(Parameters, frozen=True, kw_only=True):
    """Which file."""

    file_id: str


def send_photo(world: World, parameters: SendPhoto) -> Wire:
    """Post a picture."""
    return _send(world, parameters, "photo", parameters.photo)


def send_document(world: World, parameters: SendDocument) -> Wire:
    """Post a file."""
    return _send(world, parameters, "document", parameters.document)


def send_voice(world: World, parameters: SendVoice) -> Wire:
    """Post a voice message."""
    return _send(world, parameters, "voice", parameters.voice, duration=parameters.duration)


def send_sticker(world: World, parameters: SendSticker) -> Wire:
    """Post a sticker."""
    return _send(world, parameters, "sticker", parameters.sticker, emoji=parameters.emoji)


def send_media_group(world: World, parameters: SendMediaGroup) -> list[Wire]:
    """Post an album of two to ten files of one kind."""
    world.writable(parameters.chat_id)
    if not 2 <= len(parameters.media) <= _LARGEST_ALBUM:
        raise bad_request("media must include 2-10 items")
    if len({one.type for one in parameters.media}) != 1:
        raise bad_request("documents can't be mixed with other media types")
    files = world.account.files
    read = [(files.resolve(one.type, parameters.file(one)), one.type, *read_caption(one)) for one in parameters.media]
    room, target = destination(world, parameters)
    album = f"14{len(room.log):015}"
    return [
        room.add(
            author_of(world, room),
            by_bot=True,
            media=files.media(kind, file),
            text=text,
            entities=entities,
            album=album,
            **target,
        ).wire()
        for file, kind, text, entities in read
    ]


def get_file(world: World, parameters: GetFile) -> Wire:
    """Return where a file can be fetched."""
    file = world.account.files.find(parameters.file_id)
    if file is None:
        raise bad_request("invalid file_id")
    if len(file.data) > LARGEST_DOWNLOAD:
        raise bad_request("file is too big")
    return file.wire() | {"file_path": file.path}


MEDIA = [
    Method("sendPhoto", SendPhoto, send_photo),
    Method("sendDocument", SendDocument, send_document),
    Method("sendVoice", SendVoice, send_voice),
    Method("sendSticker", SendSticker, send_sticker),
    Method("sendMediaGroup", SendMediaGroup, send_media_group),
    Method("getFile", GetFile, get_file),
]


class SendMessage(Sending, frozen=True, kw_only=True):
    """A text to post."""

    text: str
    parse_mode: str = ""
    entities: list[MessageEntity] | None = None
    link_preview_options: LinkPreviewOptions | None = None


class Editing(Parameters, frozen=True, kw_only=True):
    """Which message is edited."""

    business_connection_id: str = ""
    chat_id: int | str | None = None
    message_id: int | None = None
    inline_message_id: str = ""
    reply_markup: dict[str, Any] | None = None


class EditMessageText(Editing, frozen=True, kw_only=True):
    """Another text."""

    text: str = ""
    parse_mode: str = ""
    entities: list[MessageEntity] | None = None
    link_preview_options: LinkPreviewOptions | None = None
    rich_message: dict[str, Any] | None = None


class EditMessageCaption(Editing, frozen=True, kw_only=True):
    """Another caption."""

    caption: str = ""
    parse_mode: str = ""
    caption_entities: list[MessageEntity] | None = None
    show_caption_above_media: bool = False


class DeleteMessage(Parameters, frozen=True, kw_only=True):
    """A message to delete."""

    chat_id: int | str
    message_id: int


class DeleteMessages(Parameters, frozen=True, kw_only=True):
    """Messages to delete."""

    chat_id: int | str
    message_ids: list[int]


def send_message(world: World, parameters: SendMessage) -> Wire:
    """Post a text."""
    world.writable(parameters.chat_id)
    text, entities = _read(parameters.text, parameters.parse_mode, parameters.entities)
    return post(world, parameters, text=text, entities=entities, preview=parameters.link_preview_options).wire()


def edit_message_text(world: World, parameters: EditMessageText) -> Wire:
    """Replace a text, and the buttons with it."""
    message = _find_editable(world, parameters)
    if parameters.rich_message is not None:
        raise bad_request("rich messages are not supported here")
    if message.media is not None:
        raise bad_request("there is no text in the message to edit")
    text, entities = _read(parameters.text, parameters.parse_mode, parameters.entities)
    message.preview = parameters.link_preview_options or message.preview
    return _change(world, parameters, message, text, entities)


def edit_message_caption(world: World, parameters: EditMessageCaption) -> Wire:
    """Replace the caption of a file, and its buttons."""
    message = _find_editable(world, parameters)
    if message.media is None:
        raise bad_request("there is no caption in the message to edit")
    text, entities = read_caption(parameters)
    return _change(world, parameters, message, text, entities)


def edit_message_reply_markup(world: World, parameters: Editing) -> Wire:
    """Replace the buttons alone."""
    message = _find_editable(world, parameters)
    return _change(world, parameters, message, message.text, message.entities)


def delete_message(world: World, parameters: DeleteMessage) -> bool:
    """Take a message away, for everyone."""
    room = world.writable(parameters.chat_id)
    message = world.message(room, parameters.message_id, "delete")
    if not _may_delete(room, message):
        raise bad_request("message can't be deleted")
    message.deleted = True
    world.account.changes.happened()
    return True


def delete_messages(world: World, parameters: DeleteMessages) -> bool:
    """Delete messages; missing ones are skipped."""
    room = world.writable(parameters.chat_id)
    if not 1 <= len(parameters.message_ids) <= 100:
        raise bad_request(
            "message identifiers are not specified" if not parameters.message_ids else "too many messages"
        )
    for message_id in parameters.message_ids:
        message = room.find(message_id)
        if message is not None and _may_delete(room, message):
            message.deleted = True
    world.account.changes.happened()
    return True


TEXTS = [
    Method("sendMessage", SendMessage, send_message),
    Method("editMessageText", EditMessageText, edit_message_text),
    Method("editMessageCaption", EditMessageCaption, edit_message_caption),
    Method("editMessageReplyMarkup", Editing, edit_message_reply_markup),
    Method("deleteMessage", DeleteMessage, delete_message),
    Method("deleteMessages", DeleteMessages, delete_messages),
]


def _send(world: World, parameters: Sending, kind: Kind, given: Upload | str, **more: Any) -> Wire:
    world.writable(parameters.chat_id)
    files = world.account.files
    text, entities = read_caption(parameters) if isinstance(parameters, Captioned) else ("", ())
    media = files.media(kind, files.resolve(kind, given), **more)
    return post(world, parameters, media=media, text=text, entities=entities).wire()


def _may_delete(room: ChatState, message: Message) -> bool:
    return message.from_bot or room.admin or room.info.type == "private"


def _read(text: str, parse_mode: str, entities: list[MessageEntity] | None) -> tuple[str, tuple[MessageEntity, ...]]:
    text, found = read_text(text, parse_mode, entities)
    if not text:
        raise bad_request("message text is empty")
    if units(text) > LONGEST_TEXT:
        raise bad_request("message is too long")
    return text, found


def _find_editable(world: World, parameters: Editing) -> Message:
    if parameters.chat_id is None:
        raise bad_request("chat_id is empty")
    if parameters.message_id is None:
        raise bad_request("message identifier is not specified")
    message = world.message(world.writable(parameters.chat_id), parameters.message_id, "edit")
    if not message.from_bot or message.service:
        raise bad_request("message can't be edited")
    return message


def _change(
    world: World, parameters: Editing, message: Message, text: str, entities: tuple[MessageEntity, ...]
) -> Wire:
    markup = read_markup(parameters.reply_markup)
    if markup is not None and not isinstance(markup, InlineKeyboardMarkup):
        raise bad_request("inline keyboard expected")
    buttons = inline(markup)
    if (text, entities, buttons) == (message.text, message.entities, message.markup):
        raise bad_request(_NOT_MODIFIED)
    message.change(text, entities, buttons, world.account.now())
    world.account.changes.happened()
    return message.wire()

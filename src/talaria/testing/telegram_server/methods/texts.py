"""Messages of text: sent, edited, deleted."""

from typing import Any

from talaria.testing.telegram_server.checks import Parameters, inline, read_markup
from talaria.testing.telegram_server.markup import read_text
from talaria.testing.telegram_server.markup.text import units
from talaria.testing.telegram_server.messages import Message
from talaria.testing.telegram_server.methods.method import Method
from talaria.testing.telegram_server.methods.sending import LONGEST_TEXT, Sending, post, read_caption
from talaria.testing.telegram_server.parts import InlineKeyboardMarkup, LinkPreviewOptions, MessageEntity
from talaria.testing.telegram_server.places import Wire
from talaria.testing.telegram_server.refusals import bad_request
from talaria.testing.telegram_server.room import Room
from talaria.testing.telegram_server.world import World

_SAME = (
    "message is not modified: specified new message content and reply markup are exactly the same as a current content"
    " and reply markup of the message"
)


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
    """Which message is to go."""

    chat_id: int | str
    message_id: int


class DeleteMessages(Parameters, frozen=True, kw_only=True):
    """Which messages are to go."""

    chat_id: int | str
    message_ids: list[int]


def send_message(world: World, asked: SendMessage) -> Wire:
    """Post a text."""
    world.writable(asked.chat_id)
    text, entities = _read(asked.text, asked.parse_mode, asked.entities)
    return post(world, asked, text=text, entities=entities, preview=asked.link_preview_options).wire()


def edit_message_text(world: World, asked: EditMessageText) -> Wire:
    """Replace a text, and the buttons with it."""
    message = _editable(world, asked)
    if asked.rich_message is not None:
        raise bad_request("rich messages are not supported here")
    if message.media is not None:
        raise bad_request("there is no text in the message to edit")
    text, entities = _read(asked.text, asked.parse_mode, asked.entities)
    message.preview = asked.link_preview_options or message.preview
    return _change(world, asked, message, text, entities)


def edit_message_caption(world: World, asked: EditMessageCaption) -> Wire:
    """Replace the words of a file, and the buttons with them."""
    message = _editable(world, asked)
    if message.media is None:
        raise bad_request("there is no caption in the message to edit")
    text, entities = read_caption(asked)
    return _change(world, asked, message, text, entities)


def edit_message_reply_markup(world: World, asked: Editing) -> Wire:
    """Replace the buttons alone."""
    message = _editable(world, asked)
    return _change(world, asked, message, message.text, message.entities)


def delete_message(world: World, asked: DeleteMessage) -> bool:
    """Take a message away, for everyone."""
    room = world.writable(asked.chat_id)
    message = world.message(room, asked.message_id, "delete")
    if not _may_delete(room, message):
        raise bad_request("message can't be deleted")
    message.deleted = True
    world.office.changes.happened()
    return True


def delete_messages(world: World, asked: DeleteMessages) -> bool:
    """Take messages away; those that are not there are skipped."""
    room = world.writable(asked.chat_id)
    if not 1 <= len(asked.message_ids) <= 100:
        raise bad_request("message identifiers are not specified" if not asked.message_ids else "too many messages")
    for message_id in asked.message_ids:
        message = room.find(message_id)
        if message is not None and _may_delete(room, message):
            message.deleted = True
    world.office.changes.happened()
    return True


def _may_delete(room: Room, message: Message) -> bool:
    return message.from_bot or room.admin or room.place.type == "private"


def _read(text: str, parse_mode: str, entities: list[MessageEntity] | None) -> tuple[str, tuple[MessageEntity, ...]]:
    text, found = read_text(text, parse_mode, entities)
    if not text:
        raise bad_request("message text is empty")
    if units(text) > LONGEST_TEXT:
        raise bad_request("message is too long")
    return text, found


def _editable(world: World, asked: Editing) -> Message:
    if asked.chat_id is None:
        raise bad_request("chat_id is empty")
    if asked.message_id is None:
        raise bad_request("message identifier is not specified")
    message = world.message(world.writable(asked.chat_id), asked.message_id, "edit")
    if not message.from_bot or message.service:
        raise bad_request("message can't be edited")
    return message


def _change(world: World, asked: Editing, message: Message, text: str, entities: tuple[MessageEntity, ...]) -> Wire:
    markup = read_markup(asked.reply_markup)
    if markup is not None and not isinstance(markup, InlineKeyboardMarkup):
        raise bad_request("inline keyboard expected")
    buttons = inline(markup)
    if (text, entities, buttons) == (message.text, message.entities, message.markup):
        raise bad_request(_SAME)
    message.change(text, entities, buttons, world.office.now())
    world.office.changes.happened()
    return message.wire()


TEXTS = [
    Method("sendMessage", SendMessage, send_message),
    Method("editMessageText", EditMessageText, edit_message_text),
    Method("editMessageCaption", EditMessageCaption, edit_message_caption),
    Method("editMessageReplyMarkup", Editing, edit_message_reply_markup),
    Method("deleteMessage", DeleteMessage, delete_message),
    Method("deleteMessages", DeleteMessages, delete_messages),
]

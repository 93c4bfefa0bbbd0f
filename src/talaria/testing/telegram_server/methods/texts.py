"""Text messages: send, edit, delete."""

from typing import Any

from talaria.testing.telegram_server.checks import Parameters, inline, read_markup
from talaria.testing.telegram_server.markup import read_text
from talaria.testing.telegram_server.markup.text import units
from talaria.testing.telegram_server.messages import Message
from talaria.testing.telegram_server.methods.base import LONGEST_TEXT, Method, Sending, post, read_caption
from talaria.testing.telegram_server.parts import InlineKeyboardMarkup, LinkPreviewOptions, MessageEntity, Wire
from talaria.testing.telegram_server.refusals import bad_request
from talaria.testing.telegram_server.room import ChatState
from talaria.testing.telegram_server.world import World

_NOT_MODIFIED = (
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
    world.office.changes.happened()
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
    world.office.changes.happened()
    return True


def _may_delete(room: ChatState, message: Message) -> bool:
    return message.from_bot or room.admin or room.place.type == "private"


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

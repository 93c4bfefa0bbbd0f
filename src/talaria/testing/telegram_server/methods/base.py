"""Parameters of methods, parsed or refused, and common parts of all methods that post a message."""

import types
from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct

from talaria.testing.telegram_server.chat import ChatState
from talaria.testing.telegram_server.entities import units
from talaria.testing.telegram_server.files import Upload
from talaria.testing.telegram_server.markup import read_text
from talaria.testing.telegram_server.messages import Message
from talaria.testing.telegram_server.parts import (
    ForceReply,
    InlineKeyboardMarkup,
    MessageEntity,
    ReplyKeyboardMarkup,
    ReplyKeyboardRemove,
    ReplyMarkup,
    ReplyParameters,
    User,
)
from talaria.testing.telegram_server.refusals import bad_request
from talaria.testing.telegram_server.world import World

Raw = Mapping[str, object]
_MISSING = {
    "chat_id": "chat_id is empty",
    "text": "message text is empty",
    "message_id": "message identifier is not specified",
    "file_id": "file_id is not specified",
    "photo": "there is no photo in the request",
    "document": "there is no document in the request",
    "voice": "there is no voice in the request",
    "sticker": "there is no sticker in the request",
}
_MARKUPS: dict[str, type[ReplyMarkup]] = {
    "inline_keyboard": InlineKeyboardMarkup,
    "keyboard": ReplyKeyboardMarkup,
    "remove_keyboard": ReplyKeyboardRemove,
    "force_reply": ForceReply,
}
_LONGEST_BUTTON = 64
Work = Callable[[World, Any], object | Awaitable[object]]
LONGEST_TEXT = 4096
LONGEST_CAPTION = 1024


class Parameters(Struct, frozen=True, kw_only=True):
    """The parameters of a method; a field ``attached`` gets the files that other parameters refer to."""


P = TypeVar("P", bound=Parameters)


def read_parameters(kind: type[P], raw: Raw) -> P:
    """Return the parameters of a request; a value in a form may be text where JSON has something else."""
    given = {name: value for name, value in raw.items() if value is not None and value != ""}
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    uploads = {name: value for name, value in given.items() if isinstance(value, Upload)}
    attached = _find_attached(given)
    for name in given:
        if name not in fields and name not in attached:
            raise bad_request(f'unknown parameter "{name}"')
    values: dict[str, Any] = {}
    if fields.pop("attached", None) is not None:
        values["attached"] = {name: uploads[name] for name in attached}
    for name, field in fields.items():
        if name in given:
            values[name] = _decode_value(name, field.type, given[name], uploads)
        elif field.default is NODEFAULT and field.default_factory is NODEFAULT:
            raise bad_request(_MISSING.get(name, f'parameter "{name}" is required'))
    return kind(**values)


def read_markup(given: dict[str, Any] | None) -> ReplyMarkup | None:
    """Return a keyboard, or refuse it."""
    if given is None:
        return None
    kind = next((kind for key, kind in _MARKUPS.items() if key in given), None)
    if kind is None:
        raise bad_request("object expected as reply markup")
    try:
        markup = msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise bad_request(f"can't parse reply keyboard markup JSON object: {error}") from error
    if isinstance(markup, InlineKeyboardMarkup):
        _check_buttons(markup)
    return markup


def inline(markup: ReplyMarkup | None) -> InlineKeyboardMarkup | None:
    """Return the part of a keyboard that hangs on the message, if it has buttons."""
    if isinstance(markup, InlineKeyboardMarkup) and any(markup.inline_keyboard):
        return InlineKeyboardMarkup(inline_keyboard=[row for row in markup.inline_keyboard if row])
    return None


class Method(Struct, frozen=True):
    """A method; ``work`` gets the validated parameters."""

    name: str
    parameters: type[Parameters]
    work: Work

    async def call(self, world: World, raw: Raw) -> object:
        """Check the parameters, do the work and return the result for the wire."""
        result = self.work(world, read_parameters(self.parameters, raw))
        return await result if isawaitable(result) else result


class AnySending(Parameters, frozen=True, kw_only=True):
    """The target of a message or an album."""

    business_connection_id: str = ""
    chat_id: int | str
    message_thread_id: int | None = None
    direct_messages_topic_id: int | None = None
    disable_notification: bool = False
    protect_content: bool = False
    allow_paid_broadcast: bool = False
    message_effect_id: str = ""
    reply_parameters: ReplyParameters | None = None


class Sending(AnySending, frozen=True, kw_only=True):
    """The target of a message, and its keyboard."""

    suggested_post_parameters: dict[str, Any] | None = None
    reply_markup: dict[str, Any] | None = None


class Captioned(Sending, frozen=True, kw_only=True):
    """A file with a caption."""

    caption: str = ""
    parse_mode: str = ""
    caption_entities: list[MessageEntity] | None = None


def destination(world: World, asked: AnySending) -> tuple[ChatState, dict[str, Any]]:
    """Return the chat, and thread and reply as arguments, or refuse."""
    if asked.business_connection_id:
        raise bad_request("business connection not found")
    if asked.direct_messages_topic_id is not None:
        raise bad_request("the chat is not a direct messages chat")
    room = world.writable(asked.chat_id)
    topic = room.topic(asked.message_thread_id)
    answered = _find_replied(room, asked.reply_parameters)
    if topic is None and answered is not None and answered.in_topic:
        topic = room.topic(answered.thread)
    thread = topic.id if topic else None
    if thread is None and answered is not None and room.info.type == "supergroup":
        thread = answered.thread or answered.id
    if answered is None and topic is not None and room.info.is_forum:
        answered = room.find(topic.id)
    return room, {"thread": thread, "in_topic": topic is not None, "reply_to": answered}


def post(world: World, asked: Sending, **content: Any) -> Message:
    """Put the bot's message into its chat."""
    markup = inline(read_markup(asked.reply_markup))
    room, target = destination(world, asked)
    return room.add(author_of(world, room), by_bot=True, markup=markup, **target, **content)


def author_of(world: World, room: ChatState) -> User | None:
    """Return the sender of the bot's messages; none in a channel."""
    return None if room.info.type == "channel" else world.account.bot


def read_caption(asked: Any) -> tuple[str, tuple[MessageEntity, ...]]:
    """Return the caption of a file, or refuse it."""
    text, entities = read_text(asked.caption or "", asked.parse_mode, asked.caption_entities)
    if units(text) > LONGEST_CAPTION:
        raise bad_request("message caption is too long")
    return text, entities


def _check_buttons(markup: InlineKeyboardMarkup) -> None:
    for row in markup.inline_keyboard:
        for button in row:
            does = msgspec.to_builtins(button)
            kinds = does.keys() - {"text", "style", "icon_custom_emoji_id"}
            if not button.text.strip():
                raise bad_request("text buttons are unallowed in the inline keyboard")
            if len(kinds) != 1:
                raise bad_request("text buttons are unallowed in the inline keyboard")
            if button.callback_data is not None and not 1 <= len(button.callback_data.encode()) <= _LONGEST_BUTTON:
                raise bad_request("BUTTON_DATA_INVALID")
            if button.url is not None and not button.url.startswith(("http://", "https://", "tg://")):
                raise bad_request("inline keyboard button URL is invalid")


def _find_attached(given: Raw) -> set[str]:
    """Return the names of files that other parameters point to."""
    texts = [value for value in given.values() if isinstance(value, str)]
    texts += [msgspec.json.encode(value).decode() for value in given.values() if isinstance(value, list | dict)]
    return {
        name
        for name, value in given.items()
        if isinstance(value, Upload) and any(f"attach://{name}" in text for text in texts)
    }


def _decode_value(name: str, kind: Any, value: object, uploads: Mapping[str, Upload]) -> Any:
    kinds = _list_alternatives(kind)
    if Upload in kinds:
        return _decode_file(name, value, uploads)
    if isinstance(value, Upload):
        raise bad_request(f'parameter "{name}" is not a file')
    try:
        if isinstance(value, str) and not ({str, bool, int} & kinds):
            value = msgspec.json.decode(value)
        scalar = bool({str, bool, int} & kinds)
        if scalar and isinstance(value, bool) and bool not in kinds:
            raise bad_request(f"can't parse {name}: Expected another type than Boolean")
        if kinds == {int, str} and isinstance(value, str):
            return int(value) if value.removeprefix("-").isdecimal() else value
        return msgspec.convert(value, kind, strict=not isinstance(value, str) or not scalar)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise bad_request(f"can't parse {name}: {error}") from error


def _list_alternatives(kind: Any) -> set[Any]:
    if get_origin(kind) in (Union, types.UnionType):
        return {one for one in get_args(kind) if one is not types.NoneType}
    return {kind}


def _decode_file(name: str, value: object, uploads: Mapping[str, Upload]) -> Upload | str:
    if isinstance(value, Upload):
        return value
    if not isinstance(value, str):
        raise bad_request(f"can't parse {name}: Expected a file")
    if value.startswith("attach://"):
        found = uploads.get(value.removeprefix("attach://"))
        if found is None:
            raise bad_request(f"there is no file with the name {value.removeprefix('attach://')} in the request")
        return found
    return value


def _find_replied(room: ChatState, reply: ReplyParameters | None) -> Message | None:
    if reply is None:
        return None
    if reply.chat_id not in (None, room.info.id):
        raise bad_request("replies to other chats are not supported here")
    found = room.find(reply.message_id)
    if found is None and not reply.allow_sending_without_reply:
        raise bad_request("message to be replied not found")
    return found

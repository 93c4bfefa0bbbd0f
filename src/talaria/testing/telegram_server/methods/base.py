"""Common parts of all methods that post a message."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

from msgspec import Struct

from talaria.testing.telegram_server.checks import Parameters, Raw, inline, read_markup, read_parameters
from talaria.testing.telegram_server.markup import read_text
from talaria.testing.telegram_server.markup.text import units
from talaria.testing.telegram_server.messages import Message
from talaria.testing.telegram_server.parts import MessageEntity, ReplyParameters, User
from talaria.testing.telegram_server.refusals import bad_request
from talaria.testing.telegram_server.room import ChatState
from talaria.testing.telegram_server.world import World

Work = Callable[[World, Any], object | Awaitable[object]]


class Method(Struct, frozen=True):
    """A method; ``work`` gets the validated parameters."""

    name: str
    parameters: type[Parameters]
    work: Work

    async def call(self, world: World, raw: Raw) -> object:
        """Check the parameters, do the work and return the result for the wire."""
        result = self.work(world, read_parameters(self.parameters, raw))
        return await result if isawaitable(result) else result


LONGEST_TEXT = 4096


LONGEST_CAPTION = 1024


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
    """Return the chat and the place in it, or refuse."""
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
    if thread is None and answered is not None and room.place.type == "supergroup":
        thread = answered.thread or answered.id
    if answered is None and topic is not None and room.place.is_forum:
        answered = room.find(topic.id)
    return room, {"thread": thread, "in_topic": topic is not None, "reply_to": answered}


def post(world: World, asked: Sending, **content: Any) -> Message:
    """Put the bot's message into its chat."""
    markup = inline(read_markup(asked.reply_markup))
    room, place = destination(world, asked)
    return room.add(author_of(world, room), by_bot=True, markup=markup, **place, **content)


def author_of(world: World, room: ChatState) -> User | None:
    """Return the sender of the bot's messages; none in a channel."""
    return None if room.place.type == "channel" else world.office.bot


def read_caption(asked: Any) -> tuple[str, tuple[MessageEntity, ...]]:
    """Return the caption of a file, or refuse it."""
    text, entities = read_text(asked.caption or "", asked.parse_mode, asked.caption_entities)
    if units(text) > LONGEST_CAPTION:
        raise bad_request("message caption is too long")
    return text, entities


def _find_replied(room: ChatState, reply: ReplyParameters | None) -> Message | None:
    if reply is None:
        return None
    if reply.chat_id not in (None, room.place.id):
        raise bad_request("replies to other chats are not supported here")
    found = room.find(reply.message_id)
    if found is None and not reply.allow_sending_without_reply:
        raise bad_request("message to be replied not found")
    return found

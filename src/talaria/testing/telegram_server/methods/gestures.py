"""Chat actions, reactions, and answers to buttons."""

from talaria.testing.telegram_server.checks import Parameters
from talaria.testing.telegram_server.methods.base import Method
from talaria.testing.telegram_server.parts import Reaction, ReactionTypeEmoji
from talaria.testing.telegram_server.refusals import bad_request
from talaria.testing.telegram_server.world import World

_ACTIONS = [
    "typing",
    "upload_photo",
    "record_video",
    "upload_video",
    "record_voice",
    "upload_voice",
    "upload_document",
    "choose_sticker",
    "find_location",
    "record_video_note",
    "upload_video_note",
]
_EMOJI = {
    "❤", "👍", "👎", "🔥", "🥰", "👏", "😁", "🤔", "🤯", "😱", "🤬", "😢", "🎉", "🤩",
    "🤮", "💩", "🙏", "👌", "🕊", "🤡", "🥱", "🥴", "😍", "🐳", "❤\u200d🔥", "🌚", "🌭", "💯",
    "🤣", "⚡", "🍌", "🏆", "💔", "🤨", "😐", "🍓", "🍾", "💋", "🖕", "😈", "😴", "😭",
    "🤓", "👻", "👨\u200d💻", "👀", "🎃", "🙈", "😇", "😨", "🤝", "✍", "🤗", "🫡", "🎅", "🎄",
    "☃", "💅", "🤪", "🗿", "🆒", "💘", "🙉", "🦄", "😘", "💊", "🙊", "😎", "👾", "🤷\u200d♂",
    "🤷", "🤷\u200d♀", "😡",
}  # fmt: skip
_LONGEST_NOTICE = 200


class SendChatAction(Parameters, frozen=True, kw_only=True):
    """The bot's current action."""

    business_connection_id: str = ""
    chat_id: int | str
    message_thread_id: int | None = None
    action: str


class SetMessageReaction(Parameters, frozen=True, kw_only=True):
    """A reaction in place of the bot's former one."""

    chat_id: int | str
    message_id: int
    reaction: list[Reaction] | None = None
    is_big: bool = False


class AnswerCallbackQuery(Parameters, frozen=True, kw_only=True):
    """The notification for the person who pressed a button."""

    callback_query_id: str
    text: str = ""
    show_alert: bool = False
    url: str = ""
    cache_time: int = 0


def send_chat_action(world: World, parameters: SendChatAction) -> bool:
    """Show for some seconds what the bot is doing."""
    room = world.writable(parameters.chat_id)
    if parameters.action not in _ACTIONS:
        raise bad_request("wrong parameter action in request")
    room.topic(parameters.message_thread_id)
    room.actions.append((parameters.action, parameters.message_thread_id))
    world.office.changes.happened()
    return True


def set_message_reaction(world: World, parameters: SetMessageReaction) -> bool:
    """React to a message; without a reaction, take the former one away."""
    room = world.writable(parameters.chat_id)
    message = world.message(room, parameters.message_id, "react")
    reactions = parameters.reaction or []
    if len(reactions) > 1:
        raise bad_request("REACTIONS_TOO_MANY")
    chosen = [one.emoji for one in reactions if isinstance(one, ReactionTypeEmoji) and one.emoji in _EMOJI]
    if len(chosen) != len(reactions):
        raise bad_request("REACTION_INVALID")
    message.reactions[world.office.bot.id] = tuple(chosen)
    world.office.changes.happened()
    return True


def answer_callback_query(world: World, parameters: AnswerCallbackQuery) -> bool:
    """Answer a button, once."""
    press = world.office.presses.get(parameters.callback_query_id)
    if press is None or press.is_answered:
        raise bad_request("query is too old and response timeout expired or query ID is invalid")
    if len(parameters.text) > _LONGEST_NOTICE:
        raise bad_request("MESSAGE_TOO_LONG")
    press.is_answered, press.answer, press.alert = True, parameters.text, parameters.show_alert
    world.office.changes.happened()
    return True


GESTURES = [
    Method("sendChatAction", SendChatAction, send_chat_action),
    Method("setMessageReaction", SetMessageReaction, set_message_reaction),
    Method("answerCallbackQuery", AnswerCallbackQuery, answer_callback_query),
]

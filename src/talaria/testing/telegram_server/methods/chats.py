"""The bot's account (identity, updates, commands) and its chats: members, topics, actions, reactions, buttons."""

import re

import msgspec

from talaria.testing.telegram_server.chat import COLOURS, ChatState
from talaria.testing.telegram_server.files import Upload
from talaria.testing.telegram_server.methods.base import Method, Parameters
from talaria.testing.telegram_server.parts import BotCommand, BotCommandScope, Reaction, ReactionTypeEmoji, Wire
from talaria.testing.telegram_server.refusals import bad_request, conflict
from talaria.testing.telegram_server.world import World

_MOST_COMMANDS = 100
_LONGEST_POLL = 50
_LONGEST_NAME = 128
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


class GetMe(Parameters, frozen=True, kw_only=True):
    """No parameters."""


class GetUpdates(Parameters, frozen=True, kw_only=True):
    """Parameters of a poll; ``timeout`` is in seconds."""

    offset: int = 0
    limit: int = 100
    timeout: int = 0
    allowed_updates: list[str] | None = None


class SetWebhook(Parameters, frozen=True, kw_only=True):
    """The target of updates."""

    url: str = ""
    certificate: Upload | str | None = None
    ip_address: str | None = None
    max_connections: int = 40
    allowed_updates: list[str] | None = None
    drop_pending_updates: bool = False
    secret_token: str = ""


class DeleteWebhook(Parameters, frozen=True, kw_only=True):
    """Parameters: drop pending updates or not."""

    drop_pending_updates: bool = False


class SetMyCommands(Parameters, frozen=True, kw_only=True):
    """A menu."""

    commands: list[BotCommand]
    scope: BotCommandScope | None = None
    language_code: str = ""


class GetMyCommands(Parameters, frozen=True, kw_only=True):
    """Which menu."""

    scope: BotCommandScope | None = None
    language_code: str = ""


def get_me(world: World, _: GetMe) -> Wire:
    """Return the bot."""
    return world.account.me()


async def get_updates(world: World, parameters: GetUpdates) -> list[Wire]:
    """Wait for updates; an offset confirms those before it."""
    updates = world.account.updates
    if world.webhook.url:
        raise conflict(
            "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
        )
    updates.confirm(parameters.offset)
    updates.allow(parameters.allowed_updates)
    limit = parameters.limit if 1 <= parameters.limit <= 100 else 100
    found = await updates.poll(limit=limit, timeout=min(max(parameters.timeout, 0), _LONGEST_POLL))
    return [update.wire() for update in found]


def set_webhook(world: World, parameters: SetWebhook) -> bool:
    """Deliver updates to an address; an empty one ends that."""
    if parameters.url and not re.match(r"https?://[^/\s]+", parameters.url):
        raise bad_request("bad webhook: An HTTPS URL must be provided for webhook")
    if parameters.secret_token and not re.fullmatch(r"[A-Za-z0-9_-]{1,256}", parameters.secret_token):
        raise bad_request("secret token contains unallowed characters")
    if not 1 <= parameters.max_connections <= 100:
        raise bad_request("max_connections must be between 1 and 100")
    updates = world.account.updates
    if parameters.drop_pending_updates:
        updates.forget()
    updates.allow(parameters.allowed_updates)
    world.webhook.point(parameters.url, parameters.secret_token, parameters.max_connections)
    return True


def delete_webhook(world: World, parameters: DeleteWebhook) -> bool:
    """Let updates wait until they are asked for."""
    return set_webhook(world, SetWebhook(drop_pending_updates=parameters.drop_pending_updates))


def get_webhook_info(world: World, _: GetMe) -> Wire:
    """Return the state of the webhook."""
    return world.webhook.wire()


def set_my_commands(world: World, parameters: SetMyCommands) -> bool:
    """Store a menu of commands."""
    if len(parameters.commands) > _MOST_COMMANDS:
        raise bad_request("BOT_COMMANDS_TOO_MUCH")
    for one in parameters.commands:
        if not re.fullmatch(r"[a-z0-9_]{1,32}", one.command.removeprefix("/")):
            raise bad_request("BOT_COMMAND_INVALID")
        if not 1 <= len(one.description.strip()) <= 256:
            raise bad_request("BOT_COMMAND_DESCRIPTION_INVALID")
    world.menus[_make_menu_key(parameters)] = [
        BotCommand(command=one.command.removeprefix("/"), description=one.description.strip())
        for one in parameters.commands
    ]
    world.account.changes.happened()
    return True


def get_my_commands(world: World, parameters: GetMyCommands) -> list[Wire]:
    """Return a menu of commands."""
    return [msgspec.to_builtins(one) for one in world.menus.get(_make_menu_key(parameters), [])]


def delete_my_commands(world: World, parameters: GetMyCommands) -> bool:
    """Forget a menu of commands."""
    world.menus.pop(_make_menu_key(parameters), None)
    return True


ACCOUNT = [
    Method("getMe", GetMe, get_me),
    Method("getUpdates", GetUpdates, get_updates),
    Method("setWebhook", SetWebhook, set_webhook),
    Method("deleteWebhook", DeleteWebhook, delete_webhook),
    Method("getWebhookInfo", GetMe, get_webhook_info),
    Method("setMyCommands", SetMyCommands, set_my_commands),
    Method("getMyCommands", GetMyCommands, get_my_commands),
    Method("deleteMyCommands", GetMyCommands, delete_my_commands),
]


class GetChat(Parameters, frozen=True, kw_only=True):
    """Which chat."""

    chat_id: int | str


class GetChatMember(Parameters, frozen=True, kw_only=True):
    """Parameters: a person and a chat."""

    chat_id: int | str
    user_id: int


class CreateForumTopic(Parameters, frozen=True, kw_only=True):
    """A topic to open."""

    chat_id: int | str
    name: str
    icon_color: int | None = None
    icon_custom_emoji_id: str = ""


class EditForumTopic(Parameters, frozen=True, kw_only=True):
    """Changes of a topic."""

    chat_id: int | str
    message_thread_id: int
    name: str = ""
    icon_custom_emoji_id: str = ""


class OneTopic(Parameters, frozen=True, kw_only=True):
    """Which topic."""

    chat_id: int | str
    message_thread_id: int


def get_chat(world: World, parameters: GetChat) -> Wire:
    """Return all that is known of a chat."""
    room = world.writable(parameters.chat_id)
    gifts = ("unlimited_gifts", "limited_gifts", "unique_gifts", "premium_subscription", "gifts_from_channels")
    return room.info.wire() | {
        "accent_color_id": abs(room.info.id) % 7,
        "max_reaction_count": 11,
        "accepted_gift_types": dict.fromkeys(gifts, False),
    }


def get_chat_member(world: World, parameters: GetChatMember) -> Wire:
    """Return what someone is in a chat."""
    room = world.writable(parameters.chat_id)
    user = world.people.get(parameters.user_id)
    if user is None:
        raise bad_request("user not found" if room.info.type == "private" else "member not found")
    return room.member(user)


def leave_chat(world: World, parameters: GetChat) -> bool:
    """Let the bot go."""
    room = world.writable(parameters.chat_id)
    if room.info.type == "private":
        raise bad_request("chat member status can't be changed in private chats")
    room.gone = f"bot is not a member of the {room.info.type} chat"
    world.account.changes.happened()
    return True


def create_forum_topic(world: World, parameters: CreateForumTopic) -> Wire:
    """Open a topic in a forum, or in a private chat of a bot with topics."""
    room = _find_forum(world, parameters.chat_id, "create a topic")
    if not 1 <= len(parameters.name.strip()) <= _LONGEST_NAME:
        raise bad_request("TOPIC_TITLE_EMPTY" if not parameters.name.strip() else "topic name is too long")
    if parameters.icon_color is not None and parameters.icon_color not in COLOURS:
        raise bad_request("invalid icon color specified")
    topic, _ = room.add_topic(world.account.bot, parameters.name.strip(), parameters.icon_color)
    return topic.wire()


def edit_forum_topic(world: World, parameters: EditForumTopic) -> bool:
    """Give a topic another name."""
    room = _find_forum(world, parameters.chat_id, "edit the topic")
    topic = room.topic(parameters.message_thread_id)
    assert topic is not None
    if len(parameters.name) > _LONGEST_NAME:
        raise bad_request("topic name is too long")
    if parameters.name in ("", topic.name) and not parameters.icon_custom_emoji_id:
        raise bad_request("TOPIC_NOT_MODIFIED")
    if parameters.name:
        topic.name = parameters.name
        service = {"forum_topic_edited": {"name": parameters.name}}
        room.add(world.account.bot, service=service, thread=topic.id, in_topic=True)
    return True


def close_forum_topic(world: World, parameters: OneTopic) -> bool:
    """Let only administrators write in a topic."""
    return _change_topic(world, parameters, closed=True, deleted=False)


def reopen_forum_topic(world: World, parameters: OneTopic) -> bool:
    """Let everyone write in a topic again."""
    return _change_topic(world, parameters, closed=False, deleted=False)


def delete_forum_topic(world: World, parameters: OneTopic) -> bool:
    """Take a topic away with all that is in it."""
    return _change_topic(world, parameters, closed=True, deleted=True)


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
    world.account.changes.happened()
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
    message.reactions[world.account.bot.id] = tuple(chosen)
    world.account.changes.happened()
    return True


def answer_callback_query(world: World, parameters: AnswerCallbackQuery) -> bool:
    """Answer a button, once."""
    press = world.account.presses.get(parameters.callback_query_id)
    if press is None or press.is_answered:
        raise bad_request("query is too old and response timeout expired or query ID is invalid")
    if len(parameters.text) > _LONGEST_NOTICE:
        raise bad_request("MESSAGE_TOO_LONG")
    press.is_answered, press.answer, press.alert = True, parameters.text, parameters.show_alert
    world.account.changes.happened()
    return True


CHATS = [
    Method("getChat", GetChat, get_chat),
    Method("getChatMember", GetChatMember, get_chat_member),
    Method("leaveChat", GetChat, leave_chat),
    Method("createForumTopic", CreateForumTopic, create_forum_topic),
    Method("editForumTopic", EditForumTopic, edit_forum_topic),
    Method("closeForumTopic", OneTopic, close_forum_topic),
    Method("reopenForumTopic", OneTopic, reopen_forum_topic),
    Method("deleteForumTopic", OneTopic, delete_forum_topic),
    Method("sendChatAction", SendChatAction, send_chat_action),
    Method("setMessageReaction", SetMessageReaction, set_message_reaction),
    Method("answerCallbackQuery", AnswerCallbackQuery, answer_callback_query),
]


def _make_menu_key(parameters: SetMyCommands | GetMyCommands) -> tuple[object, str]:
    scope = parameters.scope or BotCommandScope(type="default")
    return (scope.type, scope.chat_id, scope.user_id), parameters.language_code


def _change_topic(world: World, parameters: OneTopic, *, closed: bool, deleted: bool) -> bool:
    room = _find_forum(world, parameters.chat_id, "manage the topic")
    topic = room.topic(parameters.message_thread_id)
    assert topic is not None
    if topic.closed == closed and not deleted:
        raise bad_request("TOPIC_NOT_MODIFIED")
    topic.closed, topic.deleted = closed, deleted
    for message in room.log if deleted else ():
        message.deleted = message.deleted or message.thread == topic.id
    world.account.changes.happened()
    return True


def _find_forum(world: World, chat_id: int | str, action: str) -> ChatState:
    room = world.writable(chat_id)
    if room.info.type == "private":
        if not world.account.topics:
            raise bad_request("the chat is not a forum")
        return room
    if not room.info.is_forum:
        raise bad_request("the chat is not a forum")
    if not room.admin:
        raise bad_request(f"not enough rights to {action}")
    return room

"""From Telegram's updates to our vocabulary."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby

from msgspec import Struct, structs
from telegram import (
    CallbackQuery,
    Chat,
    Message,
    MessageEntity,
    MessageReactionUpdated,
    ReactionTypeEmoji,
    Update,
    User,
)

from talaria.contracts.platform import Incoming, Sender
from talaria.core.addresses import Address, ChatType
from talaria.platforms.telegram.attachments import attachments_of, words_for
from talaria.platforms.telegram.quoting import as_markdown, cut
from talaria.platforms.telegram.settings import GroupMode

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
_BEHIND_A_NAME = re.compile(r"^[\s,:;]+")


class Account(Struct, frozen=True):
    """Whom the updates are for; ``posted`` has the topics of those of our messages that are known, by chat and id."""

    platform: str
    user_id: int
    username: str
    group_mode: GroupMode = "reply"
    posted: Mapping[tuple[str, str], str] = {}


class Arrival(Struct, frozen=True):
    """One or more updates that are taken together; without ``incoming`` there is nothing in them for us."""

    last_update: int
    incoming: Incoming | None
    callback: str = ""


def read_updates(updates: Sequence[Update], account: Account) -> list[Arrival]:
    """Translate updates in their order; the parts of an album that stand side by side become one."""
    arrivals = []
    for _, group in groupby(enumerate(updates), key=lambda one: album_of(one[1]) or one[0]):
        album = [update for _, update in group]
        read = [read_update(update, account) for update in album]
        callback = album[0].callback_query.id if album[0].callback_query else ""
        known = [one for one in read if one is not None]
        arrivals.append(Arrival(album[-1].update_id, _joined(known) if known else None, callback))
    return arrivals


def album_of(update: Update) -> str:
    """Return what the parts of an album have in common, nothing for anything else."""
    message = update.message or update.channel_post
    return f"{message.chat.id}:{message.media_group_id}" if message and message.media_group_id else ""


def read_update(update: Update, account: Account) -> Incoming | None:
    """Translate one update; ``None`` where nobody did anything that concerns us."""
    if update.callback_query is not None:
        return _read_callback(update.update_id, update.callback_query, account)
    if update.message_reaction is not None:
        return _read_reaction(update.update_id, update.message_reaction, account)
    message = update.message or update.channel_post
    edited = update.edited_message or update.edited_channel_post
    if message is not None and (message.migrate_to_chat_id or message.migrate_from_chat_id):
        return _read_move(update.update_id, message, account)
    if message is not None:
        return _read_message(update.update_id, message, account)
    # Telegram also tells of changes that nobody made or sees, and of each step of somebody who shares where they are.
    if edited is not None and edited.edit_date is not None and edited.location is None:
        incoming = _read_message(update.update_id, edited, account)
        return structs.replace(incoming, edited=True, at=edited.edit_date) if incoming else None
    return None


def _joined(parts: list[Incoming]) -> Incoming:
    """Return an album as one; its id names every part, so that a part that comes later is never taken for known."""
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


def _read_callback(update_id: int, query: CallbackQuery, account: Account) -> Incoming | None:
    message = query.message
    if message is None or not query.data:
        return None
    whole = message if isinstance(message, Message) else None
    return Incoming(
        external_id=f"{update_id}:{query.id}",
        address=_address(message.chat, whole, account),
        sender=_person(query.from_user),
        at=datetime.now(UTC),  # a callback has no time of its own
        message_id=str(message.message_id),
        chat_name=_chat_name(message.chat),
        button=query.data,
    )


def _read_reaction(update_id: int, changed: MessageReactionUpdated, account: Account) -> Incoming | None:
    """Return the mark that was put on a message; Telegram says neither whose that is nor in which topic it stands."""
    before = {one.emoji for one in changed.old_reaction if isinstance(one, ReactionTypeEmoji)}
    now = [one.emoji for one in changed.new_reaction if isinstance(one, ReactionTypeEmoji)]
    added = [emoji for emoji in now if emoji not in before]
    sender = _person(changed.user) if changed.user else None
    if changed.actor_chat is not None:
        sender = Sender(str(changed.actor_chat.id), _chat_name(changed.actor_chat))
    if not added or sender is None:
        return None
    chat, message_id = changed.chat, str(changed.message_id)
    topic = account.posted.get((str(chat.id), message_id))
    return Incoming(
        external_id=f"{update_id}:{chat.id}:{message_id}",
        address=_place(chat, topic or "", account),
        sender=sender,
        at=changed.date,
        message_id=message_id,
        chat_name=_chat_name(chat),
        addressed=topic is not None or chat.type == "private" or account.group_mode == "free",
        reaction=added[-1],
    )


def _read_move(update_id: int, message: Message, account: Account) -> Incoming:
    """Return that a group has another id now: it is told of in both, the one before and the one from now on."""
    before = str(message.migrate_from_chat_id or message.chat.id)
    return Incoming(
        external_id=f"{update_id}:{message.chat.id}:{message.message_id}",
        address=Address(account.platform, str(message.migrate_to_chat_id or message.chat.id), "group"),
        sender=Sender(before, _chat_name(message.chat)),
        at=message.date,
        chat_name=_chat_name(message.chat),
        addressed=False,
        formerly=before,
    )


def _read_message(update_id: int, message: Message, account: Account) -> Incoming | None:
    sender = _sender(message)
    attachments = attachments_of(message)
    said = message.text or message.caption or ""
    if sender is None or not (said or attachments or words_for(message)):
        return None
    text, entities = _without_our_name(said, message.entities or message.caption_entities, account)
    answered = _answered(message)
    return Incoming(
        external_id=f"{update_id}:{message.chat.id}:{message.message_id}",
        address=_address(message.chat, message, account),
        sender=sender,
        at=message.date,
        text=as_markdown(text, entities) or words_for(message),
        attachments=attachments,
        message_id=str(message.message_id),
        reply_to=str(answered.message_id) if answered else "",
        chat_name=_chat_name(message.chat),
        addressed=_is_addressed(message, account),
    )


def _address(chat: Chat, message: Message | None, account: Account) -> Address:
    topic = str(message.message_thread_id) if message and message.is_topic_message else ""
    return _place(chat, topic, account)


def _place(chat: Chat, topic: str, account: Account) -> Address:
    """Return a place in a chat. A topic in a group is a place of its own; one in a private chat stays private."""
    chat_type = _CHAT_TYPES.get(chat.type, "group")
    if topic and chat_type == "group":
        chat_type = "thread"
    return Address(account.platform, str(chat.id), chat_type, topic)


def _sender(message: Message) -> Sender | None:
    """Return who wrote a message, ``None`` for other bots.

    Whoever writes in the name of a chat is that chat: all hidden administrators share one user of Telegram's own.
    """
    if message.sender_chat is not None:
        return Sender(str(message.sender_chat.id), _chat_name(message.sender_chat))
    if message.from_user is None:
        return Sender(str(message.chat.id), _chat_name(message.chat))
    return None if message.from_user.is_bot else _person(message.from_user)


def _person(user: User) -> Sender:
    return Sender(str(user.id), user.full_name)


def _chat_name(chat: Chat) -> str:
    return chat.title or " ".join(filter(None, [chat.first_name, chat.last_name])) or chat.username or ""


def _answered(message: Message) -> Message | None:
    """Return the message that is answered; in a topic everything else answers the message that opened it."""
    answered = message.reply_to_message
    if answered is None or answered.forum_topic_created is not None:
        return None
    opening = message.is_topic_message and answered.message_id == message.message_thread_id
    return None if opening else answered


def _is_addressed(message: Message, account: Account) -> bool:
    if message.chat.type == "private" or account.group_mode == "free":
        return True
    if any(_names_us(message, entity, account) for entity in _entities(message)):
        return True
    answered = _answered(message)
    if account.group_mode == "mention" or answered is None or answered.from_user is None:
        return False
    return answered.from_user.id == account.user_id


def _names_us(message: Message, entity: MessageEntity, account: Account) -> bool:
    if entity.type == "text_mention":
        return entity.user is not None and entity.user.id == account.user_id
    shown = _shown(message.text or message.caption or "", entity).lower()
    if entity.type == "mention":
        return shown == f"@{account.username.lower()}"
    # A command without a name is handed to every bot of a group that may see it.
    return entity.type == "bot_command" and shown.partition("@")[2] in ("", account.username.lower())


def _entities(message: Message) -> Sequence[MessageEntity]:
    return message.entities or message.caption_entities


def _shown(text: str, entity: MessageEntity) -> str:
    return cut(text, entity.offset, entity.offset + entity.length)


def _without_our_name(
    text: str, entities: Sequence[MessageEntity], account: Account
) -> tuple[str, Sequence[MessageEntity]]:
    """Take our name away where it only says whom a message is for: at the beginning, or behind a command."""
    if not entities or entities[0].offset != 0:
        return text, entities
    first = entities[0]
    name = f"@{account.username.lower()}"
    shown = _shown(text, first)
    rest = cut(text, first.length)
    if first.type == "mention" and shown.lower() == name:
        kept = _BEHIND_A_NAME.sub("", rest)
        return (kept, _moved(entities[1:], first.length + len(rest) - len(kept))) if kept else (text, entities)
    if first.type == "bot_command" and shown.lower().endswith(name):
        return shown[: -len(name)] + rest, _moved(entities[1:], len(name))
    return text, entities


def _moved(entities: Sequence[MessageEntity], distance: int) -> Sequence[MessageEntity]:
    """Return the entities of a text whose beginning is shorter by so many UTF-16 code units."""
    return [
        MessageEntity(one.type, one.offset - distance, one.length, url=one.url, user=one.user, language=one.language)
        for one in entities
    ]

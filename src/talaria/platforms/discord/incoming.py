"""From Discord's events to our vocabulary."""

import re
from datetime import UTC, datetime

from msgspec import Struct

from talaria.contracts.platform import Attachment, Incoming, Sender
from talaria.core.addresses import Address
from talaria.platforms.discord.settings import GroupMode
from talaria.platforms.discord.wire import (
    DIRECT,
    Channel,
    Interaction,
    Member,
    Message,
    Reaction,
    Sticker,
    Upload,
    User,
)

COMMAND, COMPONENT = 2, 3
_SAID = frozenset({0, 19})  # what a person wrote, what a person answered; all others are told by Discord itself
_EPOCH = 1_420_070_400_000
_BEHIND_A_NAME = re.compile(r"^[\s,:;]+")
_PERSON = re.compile(r"<@!?(\d+)>")
_OWN_EMOJI = re.compile(r"<a?(:\w+:)\d+>")
_STICKERS = {
    1: ("png", "image/png"),
    2: ("png", "image/apng"),
    3: ("json", "application/json"),
    4: ("gif", "image/gif"),
}


class Account(Struct, frozen=True):
    """Whom the events are for. ``free`` are channels in which everything is."""

    platform: str
    user_id: str
    group_mode: GroupMode = "reply"
    free: frozenset[str] = frozenset()


def read_message(
    message: Message, channel: Channel, account: Account, *, edited: bool = False, own_role: str = ""
) -> Incoming | None:
    """Translate a message, or the new text of one; ``None`` where no person said anything."""
    if message.author.bot or message.webhook_id or message.type not in _SAID:
        return None
    if edited and message.edited_timestamp is None:  # something else about it changed, such as a preview of a link
        return None
    text, attachments = _words(message, account, own_role), _attachments(message)
    if not text and not attachments:
        return None
    addressed = _is_addressed(message, channel, account, own_role)
    reference = message.message_reference
    return Incoming(
        external_id=f"{message.id}:{message.edited_timestamp.isoformat()}" if edited else message.id,  # type: ignore[union-attr]
        address=_place(channel, account),
        sender=_sender(message.author, message.member),
        at=(message.edited_timestamp if edited else None) or message.timestamp,
        text=text,
        attachments=attachments,
        message_id=message.id,
        reply_to=reference.message_id if reference and reference.type == 0 else "",
        chat_name=_name(channel, message.author),
        addressed=addressed,
        edited=edited,
    )


def read_reaction(event_id: str, reaction: Reaction, channel: Channel, account: Account) -> Incoming | None:
    """Translate a mark; ``None`` for our own, and for emoji that only one server has."""
    if reaction.user_id == account.user_id or reaction.emoji.id or not reaction.emoji.name:
        return None
    who = reaction.member.user if reaction.member and reaction.member.user else User(reaction.user_id)
    if who.bot:
        return None
    direct = channel.type == DIRECT
    return Incoming(
        external_id=event_id,
        address=_place(channel, account),
        sender=_sender(who, reaction.member),
        at=datetime.now(UTC),  # a mark has no time of its own
        message_id=reaction.message_id,
        chat_name=_name(channel, who),
        addressed=direct or reaction.message_author_id == account.user_id or _is_free(channel, account),
        reaction=reaction.emoji.name,
    )


def read_interaction(interaction: Interaction, channel: Channel, account: Account) -> Incoming | None:
    """Translate a command into the words that it stands for, a button or a menu into what was chosen."""
    who = interaction.member.user if interaction.member else interaction.user
    if who is None:
        return None
    data, text, button = interaction.data, "", ""
    if interaction.type == COMMAND and data.name:
        text = " ".join([f"/{data.name}", *(str(one.value) for one in data.options)]).strip()
    elif interaction.type == COMPONENT:
        button = data.values[0] if data.values else data.custom_id
    if not text and not button:
        return None
    return Incoming(
        external_id=interaction.id,
        address=_place(channel, account),
        sender=_sender(who, interaction.member),
        at=_time_of(interaction.id),
        text=text,
        message_id=interaction.message.id if interaction.message else "",
        chat_name=_name(channel, who),
        button=button,
    )


def sticker_path(reference: str) -> str:
    """Return where the sticker of an attachment lies; empty if it is none."""
    return f"/stickers/{reference.removeprefix('sticker:')}" if reference.startswith("sticker:") else ""


def _place(channel: Channel, account: Account) -> Address:
    if channel.is_thread:
        return Address(account.platform, channel.parent_id or channel.id, "thread", channel.id)
    return Address(account.platform, channel.id, "private" if channel.type == DIRECT else "group")


def _sender(user: User, member: Member | None) -> Sender:
    nick = member.nick if member else None
    return Sender(user.id, nick or user.global_name or user.username)


def _name(channel: Channel, user: User) -> str:
    return channel.name or (user.global_name or user.username if channel.type == DIRECT else "")


def _is_free(channel: Channel, account: Account) -> bool:
    return account.group_mode == "free" or not account.free.isdisjoint({channel.id, channel.parent_id or ""})


def _is_addressed(message: Message, channel: Channel, account: Account, own_role: str) -> bool:
    if channel.type == DIRECT or _is_free(channel, account):
        return True
    # Whoever answers us with a ping is said to have mentioned us, whether we are named or not.
    if account.user_id in _PERSON.findall(message.content) or (own_role and own_role in message.mention_roles):
        return True
    if account.group_mode == "mention":
        return False
    answered = message.referenced_message
    ours = answered is not None and answered.author.id == account.user_id
    return ours or (channel.is_thread and channel.owner_id == account.user_id)


def _words(message: Message, account: Account, own_role: str) -> str:
    """Return what was written, with names in place of numbers and without ours where it only says whom it is for."""
    text = message.content
    for name in (f"<@{account.user_id}>", f"<@!{account.user_id}>", f"<@&{own_role}>"):
        if text.startswith(name):
            text = _BEHIND_A_NAME.sub("", text.removeprefix(name)) or text
    names = {user.id: user.global_name or user.username for user in message.mentions}
    text = _PERSON.sub(lambda found: f"@{names.get(found[1], found[1])}", text)
    text = _OWN_EMOJI.sub(r"\1", text)
    passed = [f"[passed on] {one.message.content}" for one in message.message_snapshots if one.message.content]
    poll = [f"[poll: {message.poll.question.text}]"] if message.poll else []
    return "\n\n".join(filter(None, [text, *passed, *poll]))


def _attachments(message: Message) -> tuple[Attachment, ...]:
    uploads = [*message.attachments, *(file for one in message.message_snapshots for file in one.message.attachments)]
    return (*(_file(one, message) for one in uploads), *map(_sticker, message.sticker_items))


def _file(upload: Upload, message: Message) -> Attachment:
    media_type = upload.content_type.partition(";")[0]
    kind = "picture" if media_type.startswith("image/") and media_type != "image/svg+xml" else "document"
    return Attachment(
        f"{message.channel_id}/{message.id}/{upload.id}",
        "voice" if upload.waveform else kind,  # type: ignore[arg-type]
        upload.filename,
        media_type,
        upload.size,
    )


def _sticker(sticker: Sticker) -> Attachment:
    ending, media_type = _STICKERS.get(sticker.format_type, _STICKERS[1])
    name = f"{sticker.id}.{ending}"
    return Attachment(f"sticker:{name}", "sticker", name, media_type, 0, sticker.id, sticker.name)


def _time_of(snowflake: str) -> datetime:
    return datetime.fromtimestamp(((int(snowflake) >> 22) + _EPOCH) / 1000, UTC)

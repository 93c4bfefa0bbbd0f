"""Translate Discord's events into updates."""

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
_TEXT_MESSAGE_TYPES = frozenset({0, 19})  # messages and replies by people; all others are written by Discord itself
_EPOCH = 1_420_070_400_000
_AFTER_NAME = re.compile(r"^[\s,:;]+")
_USER_MENTION = re.compile(r"<@!?(\d+)>")
_CUSTOM_EMOJI = re.compile(r"<a?(:\w+:)\d+>")
_STICKERS = {
    1: ("png", "image/png"),
    2: ("png", "image/apng"),
    3: ("json", "application/json"),
    4: ("gif", "image/gif"),
}


class BotIdentity(Struct, frozen=True):
    """The bot's identity. In ``free`` channels every message is addressed to it."""

    platform: str
    user_id: str
    group_mode: GroupMode = "reply"
    free: frozenset[str] = frozenset()


def read_message(
    message: Message, channel: Channel, identity: BotIdentity, *, edited: bool = False, own_role: str = ""
) -> Incoming | None:
    """Translate a message, or the new text of one; ``None`` if no person wrote it."""
    if message.author.bot or message.webhook_id or message.type not in _TEXT_MESSAGE_TYPES:
        return None
    if edited and message.edited_timestamp is None:  # something else changed, for example a link preview
        return None
    text, attachments = _render_text(message, identity, own_role), _list_attachments(message)
    if not text and not attachments:
        return None
    addressed = _is_addressed(message, channel, identity, own_role)
    reference = message.message_reference
    return Incoming(
        external_id=f"{message.id}:{message.edited_timestamp.isoformat()}" if edited else message.id,  # type: ignore[union-attr]
        address=_to_address(channel, identity),
        sender=_to_sender(message.author, message.member),
        at=(message.edited_timestamp if edited else None) or message.timestamp,
        text=text,
        attachments=attachments,
        message_id=message.id,
        reply_to=reference.message_id if reference and reference.type == 0 else "",
        chat_name=_choose_chat_name(channel, message.author),
        addressed=addressed,
        edited=edited,
        server=channel.guild_id,
    )


def read_reaction(event_id: str, reaction: Reaction, channel: Channel, identity: BotIdentity) -> Incoming | None:
    """Translate a reaction; ``None`` for our own, and for custom emoji of a server."""
    if reaction.user_id == identity.user_id or reaction.emoji.id or not reaction.emoji.name:
        return None
    author_user = reaction.member.user if reaction.member and reaction.member.user else User(reaction.user_id)
    if author_user.bot:
        return None
    is_direct = channel.type == DIRECT
    return Incoming(
        external_id=event_id,
        address=_to_address(channel, identity),
        sender=_to_sender(author_user, reaction.member),
        at=datetime.now(UTC),  # a reaction has no time
        message_id=reaction.message_id,
        chat_name=_choose_chat_name(channel, author_user),
        addressed=is_direct or reaction.message_author_id == identity.user_id or _is_free(channel, identity),
        reaction=reaction.emoji.name,
        server=channel.guild_id,
    )


def read_interaction(interaction: Interaction, channel: Channel, identity: BotIdentity) -> Incoming | None:
    """Translate a command into its text, a button or a menu into the chosen value."""
    author_user = interaction.member.user if interaction.member else interaction.user
    if author_user is None:
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
        address=_to_address(channel, identity),
        sender=_to_sender(author_user, interaction.member),
        at=_parse_snowflake_time(interaction.id),
        text=text,
        message_id=interaction.message.id if interaction.message else "",
        chat_name=_choose_chat_name(channel, author_user),
        button=button,
        server=channel.guild_id,
    )


def sticker_path(reference: str) -> str:
    """Return the path of an attachment's sticker; empty if it is none."""
    return f"/stickers/{reference.removeprefix('sticker:')}" if reference.startswith("sticker:") else ""


def _to_address(channel: Channel, identity: BotIdentity) -> Address:
    if channel.is_thread:
        return Address(identity.platform, channel.parent_id or channel.id, "thread", channel.id)
    return Address(identity.platform, channel.id, "private" if channel.type == DIRECT else "group")


def _to_sender(user: User, member: Member | None) -> Sender:
    nick = member.nick if member else None
    return Sender(user.id, nick or user.global_name or user.username)


def _choose_chat_name(channel: Channel, user: User) -> str:
    return channel.name or (user.global_name or user.username if channel.type == DIRECT else "")


def _is_free(channel: Channel, identity: BotIdentity) -> bool:
    return identity.group_mode == "free" or not identity.free.isdisjoint({channel.id, channel.parent_id or ""})


def _is_addressed(message: Message, channel: Channel, identity: BotIdentity, own_role: str) -> bool:
    if channel.type == DIRECT or _is_free(channel, identity):
        return True
    # A reply with a ping counts as a mention, whether it names us or not.
    if identity.user_id in _USER_MENTION.findall(message.content) or (own_role and own_role in message.mention_roles):
        return True
    if identity.group_mode == "mention":
        return False
    referenced = message.referenced_message
    is_reply_to_us = referenced is not None and referenced.author.id == identity.user_id
    return is_reply_to_us or (channel.is_thread and channel.owner_id == identity.user_id)


def _render_text(message: Message, identity: BotIdentity, own_role: str) -> str:
    """Return the text, with names instead of ids and without a leading mention of us."""
    text = message.content
    for name in (f"<@{identity.user_id}>", f"<@!{identity.user_id}>", f"<@&{own_role}>"):
        if text.startswith(name):
            text = _AFTER_NAME.sub("", text.removeprefix(name)) or text
    names = {user.id: user.global_name or user.username for user in message.mentions}
    text = _USER_MENTION.sub(lambda found: f"@{names.get(found[1], found[1])}", text)
    text = _CUSTOM_EMOJI.sub(r"\1", text)
    forwarded = [f"[forwarded] {one.message.content}" for one in message.message_snapshots if one.message.content]
    poll = [f"[poll: {message.poll.question.text}]"] if message.poll else []
    return "\n\n".join(filter(None, [text, *forwarded, *poll]))


def _list_attachments(message: Message) -> tuple[Attachment, ...]:
    uploads = [*message.attachments, *(file for one in message.message_snapshots for file in one.message.attachments)]
    return (
        *(_to_file_attachment(one, message) for one in uploads),
        *map(_to_sticker_attachment, message.sticker_items),
    )


def _to_file_attachment(upload: Upload, message: Message) -> Attachment:
    media_type = upload.content_type.partition(";")[0]
    kind = "picture" if media_type.startswith("image/") and media_type != "image/svg+xml" else "document"
    return Attachment(
        f"{message.channel_id}/{message.id}/{upload.id}",
        "voice" if upload.waveform else kind,  # type: ignore[arg-type]
        upload.filename,
        media_type,
        upload.size,
    )


def _to_sticker_attachment(sticker: Sticker) -> Attachment:
    suffix, media_type = _STICKERS.get(sticker.format_type, _STICKERS[1])
    name = f"{sticker.id}.{suffix}"
    return Attachment(f"sticker:{name}", "sticker", name, media_type, 0, sticker.id, sticker.name)


def _parse_snowflake_time(snowflake: str) -> datetime:
    return datetime.fromtimestamp(((int(snowflake) >> 22) + _EPOCH) / 1000, UTC)

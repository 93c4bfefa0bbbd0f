"""From what Slack hands over to what a person did."""

from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec import Struct, structs

from talaria.contracts.platform import Attachment, Incoming, Sender
from talaria.core.addresses import Address
from talaria.platforms.slack.emoji import emoji_for
from talaria.platforms.slack.events import Command, Event, Interaction, Said, SharedFile
from talaria.platforms.slack.settings import ChannelReplies, GroupMode
from talaria.platforms.slack.wording import mentioned, read_text

_SPOKEN = frozenset({"", "file_share", "thread_broadcast", "me_message"})
_PICTURES = frozenset({"image/jpeg", "image/png", "image/webp", "image/gif"})
_SLACKBOT = "USLACKBOT"
_NO_NAMES = frozenset({"directmessage", "privategroup", "mpim"})


class Me(Struct, frozen=True, kw_only=True):
    """Whom it is for; ``commands`` are the names of ours, ``command`` the one behind which all of them can stand."""

    platform: str
    user_id: str
    name: str = ""
    group_mode: GroupMode = "reply"
    channel_replies: ChannelReplies = "thread"
    command: str = "talaria"
    commands: frozenset[str] = frozenset()


class Known(Struct, frozen=True, kw_only=True):
    """What has to be known besides: the names of people by their ids, and that of the channel.

    ``ours`` says that we take part in the thread, ``meant`` that we were meant before an edit. ``thread`` is where the
    message stands on which a mark was put.
    """

    names: Mapping[str, str] = {}
    chat_name: str = ""
    ours: bool = False
    meant: bool = False
    thread: str = ""


def channel_of(event: Event) -> str:
    """Return the channel in which something happened."""
    return event.channel or event.item.channel


def people_of(event: Event) -> list[str]:
    """Return the ids of the people whose names belong to what happened."""
    said = event.message if event.subtype == "message_changed" else event
    return [one for one in dict.fromkeys([said.user, *mentioned(said.text)]) if one]


def thread_of(event: Event) -> str:
    """Return the thread in which something was said, empty where that is none."""
    said = event.message if event.subtype == "message_changed" else event
    return _thread(said)


def read_event(event: Event, me: Me, known: Known) -> Incoming | None:
    """Return what a person did; ``None`` where nobody did anything that concerns us."""
    if event.type == "reaction_added":
        return _marked(event, me, known)
    if event.type not in ("message", "app_mention"):
        return None
    if event.subtype == "message_changed":
        return _edited(event, me, known)
    return _message(event, event.channel, me, known) if event.subtype in _SPOKEN else None


def read_command(command: Command, me: Me, now: datetime) -> Incoming | None:
    """Return a slash command as what it would be elsewhere: a message that begins with a stroke."""
    if not command.channel_id or not command.user_id:
        return None
    name = command.command.strip().removeprefix("/").lower()
    arguments = command.text.strip()
    text = f"/{name} {arguments}".strip()
    if name == me.command:
        word = arguments.removeprefix("/").partition(" ")[0]
        rest = arguments.removeprefix("/")[len(word) :]
        is_ours = word.lower() in me.commands or arguments.startswith("/")
        text = f"/{word.lower()}{rest}" if is_ours else arguments or "/help"
    return Incoming(
        external_id=f"{command.channel_id}:{command.trigger_id}",
        address=place(me.platform, command.channel_id, ""),
        sender=Sender(command.user_id, command.user_name),
        at=now,
        text=read_text(text, {}, me.user_id),
        chat_name="" if command.channel_name in _NO_NAMES else command.channel_name,
    )


def read_interaction(interaction: Interaction, me: Me, now: datetime) -> Incoming | None:
    """Return the button that was pressed, or the entry of a list that was chosen."""
    if interaction.type != "block_actions" or not interaction.actions:
        return None
    action, container = interaction.actions[0], interaction.container
    channel = interaction.channel.id or container.channel_id
    value = action.value or action.selected_option.value
    if not value or not channel or not interaction.user.id:
        return None
    thread = container.thread_ts or interaction.message.thread_ts
    return Incoming(
        external_id=f"{channel}:{container.message_ts}:{interaction.user.id}:{action.action_ts}",
        address=place(me.platform, channel, "" if thread == container.message_ts else thread),
        sender=Sender(interaction.user.id, interaction.user.name or interaction.user.username),
        at=now,
        message_id=container.message_ts,
        chat_name="" if interaction.channel.name in _NO_NAMES else interaction.channel.name,
        button=value,
    )


def place(platform: str, channel: str, thread: str) -> Address:
    """Return a place. A thread in a channel is a place of its own; one in a private chat stays private."""
    if is_direct(channel):
        return Address(platform, channel, "private", thread)
    return Address(platform, channel, "thread" if thread else "group", thread)


def is_direct(channel: str) -> bool:
    """Tell whether a channel is a conversation with one person: its id says so."""
    return channel.startswith("D")


def _message(said: Said, channel: str, me: Me, known: Known) -> Incoming | None:
    if said.bot_id or said.user in ("", me.user_id, _SLACKBOT) or not channel or not said.ts:
        return None
    name, thread = known.names.get(said.user, ""), _thread(said)
    addressed = _is_addressed(said, channel, me, known)
    if addressed and not thread and not is_direct(channel) and me.channel_replies == "thread":
        thread = said.ts
    attachments = tuple(_attachment(one) for one in said.files if one.id and one.mode != "tombstone")
    text = read_text(said.text, known.names, me.user_id)
    if said.subtype == "me_message":
        text = f"* {name or said.user} {text}"
    if not text and not attachments:
        return None
    return Incoming(
        external_id=f"{channel}:{said.ts}",
        address=place(me.platform, channel, thread),
        sender=Sender(said.user, name),
        at=_time(said.ts),
        text=text,
        attachments=attachments,
        message_id=said.ts,
        chat_name=known.chat_name,
        addressed=addressed,
    )


def _edited(event: Event, me: Me, known: Known) -> Incoming | None:
    """Return the new text of a message; Slack also tells of a change when it has added a preview, or answers."""
    now, before = event.message, event.previous_message
    if now.subtype not in _SPOKEN or (now.text, _ids(now)) == (before.text, _ids(before)):
        return None
    named = me.user_id in mentioned(before.text)
    changed = _message(now, event.channel, me, structs.replace(known, meant=named))
    if changed is None:
        return None
    return structs.replace(changed, external_id=f"{changed.external_id}:{now.edited.ts or event.event_ts}", edited=True)


def _marked(event: Event, me: Me, known: Known) -> Incoming | None:
    channel = event.item.channel
    if event.item.type != "message" or event.user in ("", me.user_id) or not event.reaction:
        return None
    ours = event.item_user == me.user_id
    return Incoming(
        external_id=f"{channel}:{event.item.ts}:{event.user}:{event.reaction}:{event.event_ts}",
        address=place(me.platform, channel, known.thread),
        sender=Sender(event.user, known.names.get(event.user, "")),
        at=_time(event.event_ts),
        message_id=event.item.ts,
        chat_name=known.chat_name,
        addressed=ours or is_direct(channel) or me.group_mode == "free",
        reaction=emoji_for(event.reaction),
    )


def _is_addressed(said: Said, channel: str, me: Me, known: Known) -> bool:
    if is_direct(channel) or me.group_mode == "free" or known.meant or me.user_id in mentioned(said.text):
        return True
    return me.group_mode == "reply" and bool(known.ours or (_thread(said) and said.parent_user_id == me.user_id))


def _thread(said: Said) -> str:
    """Return the thread of a message; the one that it opens itself is none."""
    return "" if said.thread_ts == said.ts else said.thread_ts


def _ids(said: Said) -> list[str]:
    return [one.id for one in said.files]


def _time(stamp: str) -> datetime:
    try:
        return datetime.fromtimestamp(float(stamp), UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.now(UTC)


def _attachment(file: SharedFile) -> Attachment:
    name = file.name or file.title or file.id
    size = max(file.size, 0)
    if file.subtype == "slack_audio":
        return Attachment(file.id, "voice", name, file.mimetype, size)
    return Attachment(file.id, "picture" if file.mimetype in _PICTURES else "document", name, file.mimetype, size)

"""Translate Slack's events into updates."""

import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from talaria.contracts.platform import Attachment, Incoming, Sender
from talaria.core.addresses import Address
from talaria.platforms.slack.events import Event, Interaction, SharedFile, SlackMessage, SlashCommand
from talaria.platforms.slack.settings import ChannelReplies, GroupMode

_EMOJI_VARIATION = "\ufe0f"  # asks for the coloured form of an emoji; the table is without
_TONES = dict(zip("🏻🏼🏽🏾🏿", ("2", "3", "4", "5", "6"), strict=True))
_TONE = re.compile("::skin-tone-([2-6])$")
FALLBACK_NAME = "eyes"
_BRACKETS = re.compile(r"<([^<>\n]+)>")
_MENTION = re.compile(r"<@([UW][A-Z0-9]+)(?:\|[^<>]*)?>")
_AFTER_NAME = re.compile(r"^[\s,:;]+")
_ENTITIES = (("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&"))
_TEXT_SUBTYPES = frozenset({"", "file_share", "thread_broadcast", "me_message"})
_PICTURES = frozenset({"image/jpeg", "image/png", "image/webp", "image/gif"})
_SLACKBOT = "USLACKBOT"
_UNNAMED_CHANNELS = frozenset({"directmessage", "privategroup", "mpim"})


class _Table(Struct, frozen=True):
    """Names by emoji, and emoji by name."""

    names: dict[str, str]
    emoji: dict[str, str]


@cache
def _read_emoji_table() -> _Table:
    """Read the table: an emoji in each line, then its names, of which Slack sends the first."""
    lines = Path(__file__).with_name("emoji.txt").read_text(encoding="utf-8").splitlines()
    entries = [line.split() for line in lines]
    return _Table(
        {sign: emoji_names[0] for sign, *emoji_names in entries},
        {one: sign for sign, *emoji_names in entries for one in emoji_names},
    )


def names_for(emoji: str) -> list[str]:
    """Return the names to mark a message with for an emoji, the best first; the last one always exists."""
    plain = emoji.strip().replace(_EMOJI_VARIATION, "")
    if plain.startswith(":") and plain.endswith(":") and len(plain) > 2:
        return list(dict.fromkeys([plain.strip(":"), FALLBACK_NAME]))
    tone = next((_TONES[one] for one in plain if one in _TONES), "")
    bare = "".join(one for one in plain if one not in _TONES)
    known = _read_emoji_table().names.get(bare)
    named = known or _make_unicode_name(bare)
    toned = [f"{known}::skin-tone-{tone}"] if known and tone else []
    return list(dict.fromkeys([*toned, *([named] if named else []), FALLBACK_NAME]))


def emoji_for(name: str) -> str:
    """Return the emoji of a name; a custom one of the workspace stays a name, between colons."""
    tone = _TONE.search(name)
    bare = _TONE.sub("", name)
    found = _read_emoji_table().emoji.get(bare) or _find_by_unicode_name(bare)
    if not found:
        return f":{bare}:"
    shade = next(sign for sign, number in _TONES.items() if number == tone[1]) if tone else ""
    return found + shade


def _make_unicode_name(emoji: str) -> str:
    """Return the Unicode name, which is often the same."""
    if len(emoji) != 1:
        return ""
    return re.sub(r"[^a-z0-9]+", "_", unicodedata.name(emoji, "").lower()).strip("_")


def _find_by_unicode_name(name: str) -> str:
    try:
        found = unicodedata.lookup(re.sub("[_-]", " ", name).upper())
    except (KeyError, ValueError):
        return ""
    return found if unicodedata.category(found[0]) == "So" else ""


def find_mentions(text: str) -> list[str]:
    """Return the ids of the people mentioned in a text."""
    return _MENTION.findall(text)


def read_text(text: str, names: Mapping[str, str], own_id: str) -> str:
    """Return a text as people see it; ``names`` are of the people in it. A leading ``own_id`` is removed."""
    first = _MENTION.match(text.lstrip())
    if first is not None and first[1] == own_id:
        rest = _AFTER_NAME.sub("", text.lstrip()[first.end() :])
        text = rest or text
    return _unescape(_BRACKETS.sub(lambda found: _render_bracket(found[1], names), text)).strip()


def escape(text: str) -> str:
    """Return a text with Slack's control characters escaped."""
    for entity in reversed(_ENTITIES):
        text = text.replace(entity[1], entity[0])
    return text


def _unescape(text: str) -> str:
    for written, entity in _ENTITIES:
        text = text.replace(written, entity)
    return text


def _render_bracket(bracketed: str, names: Mapping[str, str]) -> str:
    target, _, label = bracketed.partition("|")
    match target[0]:
        case "@":
            return f"@{label or names.get(target[1:]) or target[1:]}"
        case "#":
            return f"#{label or target[1:]}"
        case "!":
            return label or f"@{target[1:].partition('^')[0]}"
        case _:
            address = target.removeprefix("mailto:")
            return address if label in ("", address, target) else f"[{label}]({target})"


class BotIdentity(Struct, frozen=True, kw_only=True):
    """Our identity; ``commands`` are our command names, ``command`` the one that accepts all of them.

    ``workspace`` is where the app is installed; an ``is_org_wide`` app is in several, and each update names its own.
    """

    platform: str
    user_id: str
    name: str = ""
    group_mode: GroupMode = "reply"
    channel_replies: ChannelReplies = "thread"
    command: str = "talaria"
    commands: frozenset[str] = frozenset()
    workspace: str = ""
    is_org_wide: bool = False

    def find_workspace(self, payload: Mapping[str, Any]) -> str:
        """Return the workspace of an update."""
        if not self.is_org_wide:
            return self.workspace
        team = payload.get("team")
        named = payload.get("team_id") or (team.get("id") if isinstance(team, dict) else "")
        return str(named or self.workspace)


class EventContext(Struct, frozen=True, kw_only=True):
    """Context of an event: the names of people by id, and of the channel.

    ``ours`` means that we take part in the thread, ``was_addressed`` that we were addressed before an edit. ``thread``
    is the thread of a marked message.
    """

    names: Mapping[str, str] = {}
    chat_name: str = ""
    ours: bool = False
    was_addressed: bool = False
    thread: str = ""


def event_channel(event: Event) -> str:
    """Return the channel of an event."""
    return event.channel or event.item.channel


def event_people(event: Event) -> list[str]:
    """Return the ids of the people whose names an event needs."""
    slack_message = event.message if event.subtype == "message_changed" else event
    return [one for one in dict.fromkeys([slack_message.user, *find_mentions(slack_message.text)]) if one]


def event_thread(event: Event) -> str:
    """Return the thread of a message, empty if there is none."""
    slack_message = event.message if event.subtype == "message_changed" else event
    return _get_thread_ts(slack_message)


def read_event(event: Event, identity: BotIdentity, context: EventContext) -> Incoming | None:
    """Return the update; ``None`` if it doesn't concern us."""
    if event.type == "reaction_added":
        return _read_reaction(event, identity, context)
    if event.type not in ("message", "app_mention"):
        return None
    if event.subtype == "message_changed":
        return _read_edit(event, identity, context)
    return _read_message(event, event.channel, identity, context) if event.subtype in _TEXT_SUBTYPES else None


def read_command(command: SlashCommand, identity: BotIdentity, now: datetime) -> Incoming | None:
    """Return a slash command as a message that starts with a slash."""
    if not command.channel_id or not command.user_id:
        return None
    name = command.command.strip().removeprefix("/").lower()
    arguments = command.text.strip()
    text = f"/{name} {arguments}".strip()
    if name == identity.command:
        command_name = arguments.removeprefix("/").partition(" ")[0]
        rest = arguments.removeprefix("/")[len(command_name) :]
        is_ours = command_name.lower() in identity.commands or arguments.startswith("/")
        text = f"/{command_name.lower()}{rest}" if is_ours else arguments or "/help"
    return Incoming(
        external_id=f"{command.channel_id}:{command.trigger_id}",
        address=make_address(identity.platform, command.channel_id, ""),
        sender=Sender(command.user_id, command.user_name),
        at=now,
        text=read_text(text, {}, identity.user_id),
        chat_name="" if command.channel_name in _UNNAMED_CHANNELS else command.channel_name,
    )


def read_interaction(interaction: Interaction, identity: BotIdentity, now: datetime) -> Incoming | None:
    """Return the pressed button, or the chosen entry of a list."""
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
        address=make_address(identity.platform, channel, "" if thread == container.message_ts else thread),
        sender=Sender(interaction.user.id, interaction.user.name or interaction.user.username),
        at=now,
        message_id=container.message_ts,
        chat_name="" if interaction.channel.name in _UNNAMED_CHANNELS else interaction.channel.name,
        button=value,
    )


def make_address(platform: str, channel: str, thread: str) -> Address:
    """Return an address. A thread in a channel is separate; one in a private chat stays private."""
    if is_direct(channel):
        return Address(platform, channel, "private", thread)
    return Address(platform, channel, "thread" if thread else "group", thread)


def is_direct(channel: str) -> bool:
    """Return whether a channel is a private chat with one person, judging by its id."""
    return channel.startswith("D")


def _read_message(
    slack_message: SlackMessage, channel: str, identity: BotIdentity, context: EventContext
) -> Incoming | None:
    if (
        slack_message.bot_id
        or slack_message.user in ("", identity.user_id, _SLACKBOT)
        or not channel
        or not slack_message.ts
    ):
        return None
    name, thread = context.names.get(slack_message.user, ""), _get_thread_ts(slack_message)
    addressed = _is_addressed(slack_message, channel, identity, context)
    if addressed and not thread and not is_direct(channel) and identity.channel_replies == "thread":
        thread = slack_message.ts
    attachments = tuple(_to_attachment(one) for one in slack_message.files if one.id and one.mode != "tombstone")
    text = read_text(slack_message.text, context.names, identity.user_id)
    if slack_message.subtype == "me_message":
        text = f"* {name or slack_message.user} {text}"
    if not text and not attachments:
        return None
    return Incoming(
        external_id=f"{channel}:{slack_message.ts}",
        address=make_address(identity.platform, channel, thread),
        sender=Sender(slack_message.user, name),
        at=_parse_time(slack_message.ts),
        text=text,
        attachments=attachments,
        message_id=slack_message.ts,
        chat_name=context.chat_name,
        addressed=addressed,
    )


def _read_edit(event: Event, identity: BotIdentity, context: EventContext) -> Incoming | None:
    """Return the new text of a message; Slack also reports previews and answers as changes."""
    now, before = event.message, event.previous_message
    if now.subtype not in _TEXT_SUBTYPES or (now.text, _list_file_ids(now)) == (before.text, _list_file_ids(before)):
        return None
    named = identity.user_id in find_mentions(before.text)
    changed = _read_message(now, event.channel, identity, structs.replace(context, was_addressed=named))
    if changed is None:
        return None
    return structs.replace(changed, external_id=f"{changed.external_id}:{now.edited.ts or event.event_ts}", edited=True)


def _read_reaction(event: Event, identity: BotIdentity, context: EventContext) -> Incoming | None:
    channel = event.item.channel
    if event.item.type != "message" or event.user in ("", identity.user_id) or not event.reaction:
        return None
    ours = event.item_user == identity.user_id
    return Incoming(
        external_id=f"{channel}:{event.item.ts}:{event.user}:{event.reaction}:{event.event_ts}",
        address=make_address(identity.platform, channel, context.thread),
        sender=Sender(event.user, context.names.get(event.user, "")),
        at=_parse_time(event.event_ts),
        message_id=event.item.ts,
        chat_name=context.chat_name,
        addressed=ours or is_direct(channel) or identity.group_mode == "free",
        reaction=emoji_for(event.reaction),
    )


def _is_addressed(slack_message: SlackMessage, channel: str, identity: BotIdentity, context: EventContext) -> bool:
    if (
        is_direct(channel)
        or identity.group_mode == "free"
        or context.was_addressed
        or identity.user_id in find_mentions(slack_message.text)
    ):
        return True
    return identity.group_mode == "reply" and bool(
        context.ours or (_get_thread_ts(slack_message) and slack_message.parent_user_id == identity.user_id)
    )


def _get_thread_ts(slack_message: SlackMessage) -> str:
    """Return the thread of a message; the one that it opens itself doesn't count."""
    return "" if slack_message.thread_ts == slack_message.ts else slack_message.thread_ts


def _list_file_ids(slack_message: SlackMessage) -> list[str]:
    return [one.id for one in slack_message.files]


def _parse_time(stamp: str) -> datetime:
    try:
        return datetime.fromtimestamp(float(stamp), UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.now(UTC)


def _to_attachment(file: SharedFile) -> Attachment:
    name = file.name or file.title or file.id
    size = max(file.size, 0)
    if file.subtype == "slack_audio":
        return Attachment(file.id, "voice", name, file.mimetype, size)
    return Attachment(file.id, "picture" if file.mimetype in _PICTURES else "document", name, file.mimetype, size)

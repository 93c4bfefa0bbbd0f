"""The state of the fake Discord: people, channels, messages."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from msgspec import Struct, field

EPOCH = 1_420_070_400_000
TEXT, DIRECT, ANNOUNCEMENTS, PUBLIC_THREAD, FORUM = 0, 1, 5, 11, 15


class Person(Struct, frozen=True):
    """A user; the bot is one, too."""

    id: str
    username: str
    global_name: str | None = None
    bot: bool = False

    def wire(self) -> dict[str, Any]:
        """Return them as Discord shows them."""
        whole: dict[str, Any] = {
            "id": self.id,
            "username": self.username,
            "global_name": self.global_name,
            "avatar": None,
            "discriminator": "0",
            "public_flags": 0,
            "flags": 0,
            "primary_guild": None,
        }
        return {**whole, "bot": True} if self.bot else whole


class StoredAttachment(Struct, frozen=True):
    """A file of a message."""

    id: str
    name: str
    data: bytes
    url: str
    content_type: str
    seconds: float | None = None
    waveform: str = ""

    def wire(self) -> dict[str, Any]:
        """Return it as Discord shows it."""
        voice = {"duration_secs": self.seconds, "waveform": self.waveform} if self.waveform else {}
        return {
            "id": self.id,
            "filename": self.name,
            "size": len(self.data),
            "url": self.url,
            "proxy_url": self.url,
            "content_type": self.content_type,
            **voice,
        }


class Post(Struct, kw_only=True, eq=False):
    """A message."""

    id: str
    channel: "StoredChannel"
    author: Person
    text: str = ""
    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    edited_at: datetime | None = None
    reply_to: "Post | None" = None
    files: list[StoredAttachment] = field(default_factory=list)
    components: list[dict[str, Any]] = field(default_factory=list)
    reactions: dict[str, list[str]] = field(default_factory=dict)
    mentions: list[Person] = field(default_factory=list)
    roles: list[str] = field(default_factory=list)
    forwarded: "Post | None" = None
    flags: int = 0
    nonce: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """Return what the buttons below it, or the choices of its menu, say."""
        return tuple(label for label, _, _ in self.choices)

    @property
    def choices(self) -> list[tuple[str, str, bool]]:
        """Each label with its value, and whether it is one of a menu."""
        elements = [one for row in self.components for one in row["components"]]
        buttons = [(one["label"], one["custom_id"], False) for one in elements if one["type"] == 2]
        return buttons + [
            (o["label"], o["value"], True) for one in elements if one["type"] == 3 for o in one["options"]
        ]


class StoredChannel(Struct, kw_only=True, eq=False):
    """A channel, a thread, a forum or a private chat; ``forbids`` is what the bot may not do there."""

    id: str
    type: int
    name: str = ""
    guild_id: str = ""
    parent: "StoredChannel | None" = None
    owner: Person | None = None
    people: list[Person] = field(default_factory=list)
    posts: list[Post] = field(default_factory=list)
    forbids: set[str] = field(default_factory=set)

    @property
    def is_thread(self) -> bool:
        """Return whether it hangs on a channel."""
        return self.parent is not None

    def wire(self) -> dict[str, Any]:
        """Return it as Discord shows it."""
        last = self.posts[-1].id if self.posts else None
        shown: dict[str, Any] = {"id": self.id, "type": self.type, "flags": 0, "last_message_id": last}
        if self.type == DIRECT:
            return {**shown, "recipients": [person.wire() for person in self.people]}
        shown |= {"guild_id": self.guild_id, "name": self.name}
        if self.parent is None:
            return {**shown, "parent_id": None, "position": 0, "permission_overwrites": [], "nsfw": False}
        archive = {"archived": False, "archive_timestamp": _now(), "auto_archive_duration": 10080, "locked": False}
        count = len(self.posts)
        return {
            **shown,
            "parent_id": self.parent.id,
            "owner_id": self.owner.id if self.owner else "0",
            "thread_metadata": archive,
            "message_count": count,
            "member_count": 1,
            "total_message_sent": count,
        }


class Ids:
    """Ids in Discord's format: a time followed by a number, always increasing."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> str:
        """Return a new one."""
        self._last = max(self._last + 1, (time.time_ns() // 1_000_000 - EPOCH) << 22)
        return str(self._last)


def message_to_wire(post: Post, me: Person) -> dict[str, Any]:
    """Return a message as Discord shows it."""
    shown: dict[str, Any] = {
        "type": 19 if post.reply_to else 0,
        "content": post.text,
        "mentions": [person.wire() for person in post.mentions],
        "mention_roles": post.roles,
        "attachments": [file.wire() for file in post.files],
        "embeds": [],
        "timestamp": post.at.isoformat(),
        "edited_timestamp": post.edited_at.isoformat() if post.edited_at else None,
        "flags": post.flags,
        "components": [_row_to_wire(row, index) for index, row in enumerate(post.components, 1)],
        "id": post.id,
        "channel_id": post.channel.id,
        "author": post.author.wire(),
        "pinned": False,
        "mention_everyone": False,
        "tts": False,
    }
    if post.nonce:
        shown["nonce"] = post.nonce
    if post.reply_to:
        shown["message_reference"] = {"type": 0, "channel_id": post.channel.id, "message_id": post.reply_to.id}
        shown["referenced_message"] = (
            message_to_wire(post.reply_to, me) if post.reply_to in post.channel.posts else None
        )
    if post.forwarded:
        shown["message_reference"] = {
            "type": 1,
            "channel_id": post.forwarded.channel.id,
            "message_id": post.forwarded.id,
        }
        copied = ("type", "content", "mentions", "mention_roles", "attachments", "embeds", "timestamp")
        whole = message_to_wire(post.forwarded, me)
        snapshot = {name: whole[name] for name in (*copied, "edited_timestamp", "flags", "components")}
        shown["message_snapshots"] = [{"message": snapshot}]
    if reactions := {emoji: people for emoji, people in post.reactions.items() if people}:
        shown["reactions"] = [_reaction_to_wire(emoji, people, me) for emoji, people in reactions.items()]
    return shown


def member_to_wire(person: Person) -> dict[str, Any]:
    """Return a person as a member of a server, without their global profile."""
    return {"roles": [], "joined_at": _now(), "deaf": False, "mute": False, "nick": None, "flags": 0, "avatar": None}


def find_mentions(text: str, people: Iterable[Person]) -> list[Person]:
    """Return those whom a text names."""
    return [person for person in people if f"<@{person.id}>" in text]


def _reaction_to_wire(emoji: str, people: list[str], me: Person) -> dict[str, Any]:
    return {
        "emoji": {"id": None, "name": emoji},
        "count": len(people),
        "count_details": {"burst": 0, "normal": len(people)},
        "burst_colors": [],
        "me_burst": False,
        "me": me.id in people,
    }


def _row_to_wire(row: dict[str, Any], number: int) -> dict[str, Any]:
    elements = []
    for index, one in enumerate(row["components"], 1):
        shown = {**one, "id": number * 10 + index}
        if one["type"] == 3:
            shown = {"min_values": 1, "max_values": 1, **shown}
        elements.append(shown)
    return {"type": 1, "id": number, "components": elements}


def _now() -> str:
    return datetime.now(UTC).isoformat()

"""The state of a fake workspace: people, channels, messages, files."""

import time
from typing import Any, Literal

from msgspec import Struct, field

BOT_ID = "B0TALARIA"


class MethodError(Exception):
    """An error answer of a method."""

    def __init__(self, error: str, **details: object) -> None:
        super().__init__(error)
        self.error = error
        self.details = details


class User(Struct, frozen=True):
    """A user."""

    id: str
    name: str


class StoredFile(Struct):
    """A file; ``data`` is missing until it was uploaded."""

    id: str
    name: str
    length: int
    data: bytes | None = None
    mimetype: str = "application/octet-stream"
    subtype: str = ""

    def shown(self, url: str) -> dict[str, Any]:
        """Return the file as events and answers have it."""
        address = f"{url}/files/{self.id}/download"
        found = {"id": self.id, "name": self.name, "title": self.name, "mimetype": self.mimetype, "size": self.length}
        kind = {"subtype": self.subtype} if self.subtype else {}
        return found | kind | {"mode": "hosted", "url_private": address, "url_private_download": address}


class Message(Struct):
    """A message in a channel; ``reactions`` are people by emoji."""

    ts: str
    user: str
    text: str
    thread_ts: str = ""
    blocks: list[dict[str, Any]] = field(default_factory=list)
    files: list[StoredFile] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    reactions: dict[str, list[str]] = field(default_factory=dict)
    edits: int = 0
    bot: bool = False


class StoredChannel(Struct):
    """A channel or a private chat."""

    id: str
    name: str
    kind: Literal["im", "channel"]
    members: list[str]
    messages: list[Message] = field(default_factory=list)
    archived: bool = False

    def find(self, ts: str) -> Message | None:
        """Return the message of an id."""
        return next((one for one in self.messages if one.ts == ts), None)


class World(Struct):
    """A workspace."""

    url: str = ""
    bot: User = User("U0TALARIA", "talaria")
    users: dict[str, User] = field(default_factory=dict)
    channels: dict[str, StoredChannel] = field(default_factory=dict)
    files: dict[str, StoredFile] = field(default_factory=dict)
    assistant_views: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    last: int = 0

    def stamp(self) -> str:
        """Return the id of the next message: the time, which never stands still."""
        self.last = max(self.last + 1, time.time_ns() // 1000)
        return f"{self.last // 1_000_000}.{self.last % 1_000_000:06}"

    def channel(self, channel: object, *, joined: bool = True) -> StoredChannel:
        """Return a channel that the app may use; a person's id means the private chat with them."""
        for one in self.channels.values():
            if one.kind == "im" and channel in one.members and channel != self.bot.id:
                return one
        found = self.channels.get(str(channel))
        if found is None:
            raise MethodError("channel_not_found")
        if joined and self.bot.id not in found.members:
            raise MethodError("not_in_channel")
        if joined and found.archived:
            raise MethodError("is_archived")
        return found

    def message(self, channel: object, ts: object) -> Message:
        """Return a message."""
        found = self.channel(channel).find(str(ts))
        if found is None:
            raise MethodError("message_not_found")
        return found

    def add_file(self, name: str, length: int) -> StoredFile:
        """Reserve space for a file."""
        file = StoredFile(f"F{len(self.files):08}", name, length)
        self.files[file.id] = file
        return file

    def shown(self, message: Message) -> dict[str, Any]:
        """Return a message as events and answers have it."""
        shown: dict[str, Any] = {"type": "message", "user": message.user, "text": message.text, "ts": message.ts}
        if message.bot:
            shown |= {"bot_id": BOT_ID, "app_id": "A0TALARIA", "blocks": message.blocks}
        if message.thread_ts:
            shown["thread_ts"] = message.thread_ts
        if message.files:
            shown["files"] = [one.shown(self.url) for one in message.files]
        if message.reactions:
            shown["reactions"] = [
                {"name": name, "users": users, "count": len(users)} for name, users in message.reactions.items()
            ]
        return shown

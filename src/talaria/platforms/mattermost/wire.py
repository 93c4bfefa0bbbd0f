"""Translation between Mattermost's API and the vocabulary, without I/O."""

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from msgspec import Struct

from talaria.contracts.platform import Attachment, Incoming, Sender
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.platforms.content import read_command, sanitize_text

TEXT_LIMIT = 16383  # characters; longer posts are refused
_PAUSE = timedelta(seconds=5)  # of a server that doesn't say how long
_ERROR_TEXT = 200
_DIRECT = "D"


class FileInfo(Struct, frozen=True):
    """A file of a post."""

    id: str
    name: str = ""
    mime_type: str = ""
    size: int = 0


class PostMetadata(Struct, frozen=True):
    """Additions of the server to a post."""

    files: tuple[FileInfo, ...] = ()


class Post(Struct, frozen=True):
    """A post; times are in milliseconds since 1970. One with a ``type`` was written by the server."""

    id: str
    channel_id: str
    user_id: str
    create_at: int
    message: str = ""
    root_id: str = ""
    type: str = ""
    edit_at: int = 0
    delete_at: int = 0
    metadata: PostMetadata = PostMetadata()


class PostList(Struct, frozen=True):
    """A page of posts."""

    posts: Mapping[str, Post] | None = None


class MattermostUser(Struct, frozen=True):
    """An account."""

    id: str
    username: str


class MattermostChannel(Struct, frozen=True):
    """A channel that we are in; direct ones belong to no team."""

    id: str
    type: str
    display_name: str = ""
    team_id: str = ""
    last_post_at: int = 0


class Uploaded(Struct, frozen=True):
    """The answer to an upload."""

    file_infos: tuple[FileInfo, ...]


class SocketEvent(Struct, frozen=True):
    """A message of the websocket: an event, or the answer to a request (``seq_reply``)."""

    event: str = ""
    data: Mapping[str, Any] = {}
    status: str = ""
    seq_reply: int = 0


class ErrorAnswer(Struct, frozen=True):
    """The body of an error."""

    id: str = ""
    message: str = ""


def read_event_post(event: SocketEvent) -> Post | None:
    """Return the post of a ``posted`` or ``post_edited`` event; it is JSON inside JSON."""
    if event.event not in ("posted", "post_edited"):
        return None
    try:
        return msgspec.json.decode(str(event.data.get("post", "")), type=Post)
    except msgspec.DecodeError:
        return None


def is_from_person(post: Post, me: MattermostUser) -> bool:
    """Return whether somebody else wrote a post that is still there."""
    return post.user_id != me.id and not post.type and not post.delete_at


def to_incoming(
    post: Post,
    channel: MattermostChannel,
    author: MattermostUser,
    me: MattermostUser,
    *,
    platform: str,
    commands: Collection[str],
    answers_us: bool = False,
) -> Incoming:
    """Return the update for a post. ``answers_us`` means that its thread began with us."""
    direct = channel.type == _DIRECT
    mention = rf"@{re.escape(me.username)}(?![\w.-]*\w)"
    mentioned = bool(re.search(rf"(?<![\w.-]){mention}", post.message, re.IGNORECASE))
    text = re.sub(rf"\A\s*{mention}[:,]?\s*", "", post.message, count=1, flags=re.IGNORECASE)
    edited = bool(post.edit_at)
    return Incoming(
        external_id=f"{post.id}:{post.edit_at}" if edited else post.id,
        address=to_address(platform, channel, post.root_id),
        sender=Sender(author.id, author.username),
        at=datetime.fromtimestamp(post.create_at / 1000, UTC),
        text=read_command(text.strip() if mentioned else text, commands),
        attachments=tuple(_to_attachment(file) for file in post.metadata.files),
        message_id=post.id,
        reply_to=post.root_id,
        chat_name=author.username if direct else channel.display_name,
        addressed=direct or mentioned or answers_us,
        edited=edited,
        server=channel.team_id,
    )


def to_address(platform: str, channel: MattermostChannel, root_id: str) -> Address:
    """Return the address of a channel, or of a thread in it."""
    if channel.type == _DIRECT:
        return Address(platform, channel.id, "private", root_id)
    return Address(platform, channel.id, "thread" if root_id else "group", root_id)


def check_text(text: str, *, with_files: bool = False) -> str:
    """Return a text that the server accepts; raises `Rejected` if it is empty or too long."""
    text = sanitize_text(text)
    if len(text) > TEXT_LIMIT:
        raise Rejected(f"a post has at most {TEXT_LIMIT} characters, and this one {len(text)}")
    if not text.strip() and not with_files:
        raise Rejected("a post without text can't be published")
    return text


def to_error(status: int, body: bytes, headers: Mapping[str, str]) -> PlatformError:
    """Return the error for a refused request."""
    try:
        text = msgspec.json.decode(body, type=ErrorAnswer).message
    except msgspec.DecodeError:
        text = body[:_ERROR_TEXT].decode(errors="replace").strip()
    if status == 401:
        return BadCredentials("the Mattermost server doesn't accept the token; it may have been revoked")
    if status == 429:
        seconds = headers.get("x-ratelimit-reset", "") or headers.get("retry-after", "")
        pause = timedelta(seconds=max(int(seconds), 1)) if seconds.isdigit() else _PAUSE
        return SlowDown("the Mattermost server asks for a pause", retry_after=pause, everywhere=True)
    if status >= 500:
        return Unreachable(f"the Mattermost server has problems ({status}): {text}")
    return Rejected(f"Mattermost refused ({status}): {text}")


def _to_attachment(file: FileInfo) -> Attachment:
    if file.mime_type.startswith("image/"):
        return Attachment(file.id, "picture", file.name, file.mime_type, file.size)
    return Attachment(file.id, "document", file.name, file.mime_type, file.size)

"""Post, edit and mark messages on Slack, with blocks and files."""

import asyncio
import base64
import binascii
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, TypeVar

from msgspec import Struct, structs

from talaria.contracts.platform import Content, MessageRef
from talaria.core.addresses import Address
from talaria.core.errors import Rejected, SlowDown, Unreachable
from talaria.core.messages import File, Image
from talaria.platforms.content import safe_file_name
from talaria.platforms.slack.client import ApiClient, CallRefused, to_platform_error
from talaria.platforms.slack.incoming import names_for
from talaria.platforms.slack.outgoing import Post, make_posts
from talaria.platforms.slack.settings import SlackSettings
from talaria.platforms.slack.threads import JoinedThreads

_MOST_KEYS = 500
_HISTORY_LIMIT = 100


class UnconfirmedPosts:
    """The keys of messages whose posting was not confirmed, in memory."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self._keys: OrderedDict[str, None] = OrderedDict()

    def add(self, key: str) -> None:
        """Record that a message with this key may exist."""
        self._keys[key] = None
        if len(self._keys) > _MOST_KEYS:
            self._keys.popitem(last=False)

    async def find(self, to: Address, key: str) -> str:
        """Return the message with this key if it exists; if Slack doesn't answer, it counts as missing."""
        if key not in self._keys:
            return ""
        del self._keys[key]
        web = self._client.web
        if to.thread_id:
            request = web.conversations_replies(
                channel=to.chat_id, ts=to.thread_id, include_all_metadata=True, limit=_HISTORY_LIMIT
            )
        else:
            request = web.conversations_history(channel=to.chat_id, include_all_metadata=True, limit=_HISTORY_LIMIT)
        answer = await self._client.attempt(request)
        messages: list[dict[str, Any]] = (answer or {}).get("messages") or []
        return next((str(one.get("ts", "")) for one in messages if _read_message_key(one) == key), "")


def _read_message_key(message: dict[str, Any]) -> str:
    metadata: dict[str, Any] = message.get("metadata") or {}
    payload: dict[str, Any] = metadata.get("event_payload") or {}
    return str(payload.get("key", ""))


def read_upload(file: File | Image, limit: int) -> dict[str, Any]:
    """Return a file in the library's form, or raise `Rejected` if Slack wouldn't accept it."""
    name = _choose_file_name(file)
    try:
        if file.source.startswith("data:"):
            data = base64.b64decode(file.source.partition(",")[2], validate=True)
        else:
            path = Path(file.source.removeprefix("file://"))
            if path.stat().st_size > limit:
                raise Rejected(f"{name} is larger than {limit} bytes")
            data = path.read_bytes()
    except (OSError, binascii.Error) as error:
        raise Rejected(f"can't read a file: {error}") from error
    if not 0 < len(data) <= limit:
        raise Rejected(f"{name} is empty, or larger than {limit} bytes")
    return {"file": data, "filename": name, "title": name}


def _choose_file_name(file: File | Image) -> str:
    if isinstance(file, File) and file.name:
        return safe_file_name(file.name)
    if file.source.startswith("data:"):
        return f"picture.{file.media_type.rpartition('/')[2]}"
    return safe_file_name(PurePath(file.source).name, file.media_type)


T = TypeVar("T")
_MOST_POSTS = 2000
_KEY_LIMIT = 200
_EVENT = "talaria_message"
log = logging.getLogger(__name__)


class SlackIdentity(Struct, frozen=True):
    """Our identity in a workspace; an app of a whole organisation has the organisation's id instead."""

    user_id: str
    name: str
    workspace: str = ""
    is_org_wide: bool = False


class MessagePoster:
    """The app's messages; ``posted`` has the threads of its latest ones, by channel and id."""

    def __init__(self, client: ApiClient, settings: SlackSettings, threads: JoinedThreads) -> None:
        self._client = client
        self._settings = settings
        self._threads = threads
        self._unconfirmed = UnconfirmedPosts(client)
        self._identity: SlackIdentity | None = None
        self._own_reactions: OrderedDict[tuple[str, str], list[str]] = OrderedDict()
        self.posted: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post a text, then its files. Everything is checked before the first message is sent.

        A message without text is identified by its first file: Slack doesn't report its id at once.
        """
        limit, key = self._settings.file_limit, key[:_KEY_LIMIT]
        uploads = [await asyncio.to_thread(read_upload, file, limit) for file in content.files]
        posts = make_posts(content)
        best = next(posts) if content.text.strip() or content.buttons or not uploads else None
        to = await self._resolve_channel(to)
        try:
            message_id = await self._post(to, content, chain([best], posts), key) if best else ""
            if uploads:
                file_id = await self._upload(to, uploads)
                message_id = message_id or file_id
        except (Unreachable, SlowDown, asyncio.CancelledError):
            self._unconfirmed.add(key)  # the text may exist
            raise
        ref = MessageRef(to, message_id)
        self.posted[to.chat_id, message_id] = to.thread_id
        if len(self.posted) > _MOST_POSTS:
            self.posted.popitem(last=False)
        await self._threads.join(to.chat_id, to.thread_id)
        return ref

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace the text and the buttons of a message of ours."""
        await self._post_first_accepted(make_posts(content), lambda post: self._update(ref, post))

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Replace our mark on a message, or remove it."""
        reactions = await self._get_own_reactions(ref)
        candidates = names_for(emoji) if emoji else []
        current = next((name for name in candidates[:1] if name in reactions), "")
        for name in [one for one in reactions if one != current]:
            await self._change_reaction(ref, name, remove=True)
        self._cache_reactions(ref, [current] if current else [])
        if current or not candidates:
            return
        for name in candidates:
            if await self._change_reaction(ref, name):
                self._cache_reactions(ref, [name])
                return

    async def thread_of(self, channel: str, message_id: str) -> str:
        """Return the thread of a message of ours; empty if it is in none."""
        if (channel, message_id) in self.posted:
            return self.posted[channel, message_id]
        answer = await self._client.attempt(self._client.web.reactions_get(channel=channel, timestamp=message_id))
        message: dict[str, Any] = (answer or {}).get("message") or {}
        thread = str(message.get("thread_ts") or "")
        return "" if thread == message_id else thread

    async def _post(self, to: Address, content: Content, posts: Iterable[Post], key: str) -> str:
        found = await self._unconfirmed.find(to, key)
        if found:  # with the text of that time, which may have changed
            await self.edit(MessageRef(to, found), content)
            return found
        payload = {"key": key, "reply_to": content.reply_to}
        return await self._post_first_accepted(posts, lambda post: self._post_once(to, post, payload))

    async def _post_first_accepted(self, posts: Iterable[Post], post: Callable[[Post], Awaitable[T]]) -> T:
        """Post the first of several forms that Slack accepts."""
        refused: CallRefused | None = None
        for one in posts:
            try:
                return await post(one)
            except CallRefused as call_refused:
                if not call_refused.refusal.is_about_blocks:
                    raise to_platform_error(call_refused.refusal) from call_refused
                log.warning("couldn't update a message's reactions: %s", call_refused)
                refused = call_refused
        assert refused is not None
        raise to_platform_error(refused.refusal) from refused

    async def _post_once(self, to: Address, post: Post, payload: dict[str, str]) -> str:
        answer = await self._client.ask_raw(
            self._client.web.chat_postMessage(
                channel=to.chat_id,
                text=post.text,
                blocks=post.blocks or None,
                thread_ts=to.thread_id or None,
                # For a preview, Slack requests every URL in a message, with everything in it.
                unfurl_links=False,
                unfurl_media=False,
                metadata={"event_type": _EVENT, "event_payload": payload},
            )
        )
        return str(answer.get("ts", ""))

    async def _update(self, ref: MessageRef, post: Post) -> None:
        await self._client.ask_raw(
            self._client.web.chat_update(
                channel=ref.address.chat_id, ts=ref.message_id, text=post.text, blocks=post.blocks
            )
        )

    async def _upload(self, to: Address, uploads: list[dict[str, Any]]) -> str:
        answer = await self._client.ask(
            self._client.web.files_upload_v2(file_uploads=uploads, channel=to.chat_id, thread_ts=to.thread_id or None),
            self._settings.file_patience,
        )
        files: list[dict[str, Any]] = answer.get("files") or [{}]
        return str(files[0].get("id", ""))

    async def _resolve_channel(self, to: Address) -> Address:
        """Return the private chat with a person if only the person is given."""
        if not to.chat_id.startswith(("U", "W")):
            return to
        answer = await self._client.ask(self._client.web.conversations_open(users=to.chat_id))
        channel: dict[str, Any] = answer.get("channel") or {}
        if not channel.get("id"):
            raise Rejected(f"can't open a private chat with {to.chat_id}")
        return structs.replace(to, chat_id=str(channel["id"]), chat_type="private")

    async def _get_own_reactions(self, ref: MessageRef) -> list[str]:
        """Return the names of our marks on a message."""
        channel, message_id = ref.address.chat_id, ref.message_id
        if (channel, message_id) in self._own_reactions:
            return self._own_reactions[channel, message_id]
        try:
            answer = await self._client.ask_raw(
                self._client.web.reactions_get(channel=channel, timestamp=message_id, full=True)
            )
        except CallRefused as call_refused:
            if call_refused.refusal.code not in ("missing_scope", "unknown_method"):
                raise to_platform_error(call_refused.refusal) from call_refused
            return []  # then those of another process stay
        message: dict[str, Any] = answer.get("message") or {}
        own_id = (self._identity or await self.fetch_identity()).user_id
        return [str(one["name"]) for one in message.get("reactions") or [] if own_id in (one.get("users") or [])]

    async def fetch_identity(self) -> SlackIdentity:
        """Return our identity."""
        answer = await self._client.ask(self._client.web.auth_test())
        self._identity = SlackIdentity(
            str(answer.get("user_id", "")),
            str(answer.get("user", "")),
            str(answer.get("team_id") or answer.get("enterprise_id") or ""),
            bool(answer.get("is_enterprise_install")),
        )
        return self._identity

    async def _change_reaction(self, ref: MessageRef, name: str, *, remove: bool = False) -> bool:
        """Add or remove a mark; ``False`` if Slack has no such emoji."""
        web = self._client.web
        change = web.reactions_remove if remove else web.reactions_add
        try:
            await self._client.ask_raw(change(channel=ref.address.chat_id, timestamp=ref.message_id, name=name))
        except CallRefused as call_refused:
            if call_refused.refusal.code == "invalid_name":
                return False
            if call_refused.refusal.code not in ("already_reacted", "no_reaction"):
                raise to_platform_error(call_refused.refusal) from call_refused
        return True

    def _cache_reactions(self, ref: MessageRef, reactions: list[str]) -> None:
        self._own_reactions[ref.address.chat_id, ref.message_id] = reactions
        if len(self._own_reactions) > _MOST_POSTS:
            self._own_reactions.popitem(last=False)

"""Post, edit and mark: texts with their blocks, files behind them."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain
from typing import Any, TypeVar

from msgspec import Struct, structs

from talaria.contracts.platform import Content, MessageRef
from talaria.core.addresses import Address
from talaria.core.errors import Rejected, SlowDown, Unreachable
from talaria.platforms.slack.calls import Calls, NotTaken
from talaria.platforms.slack.doubts import Doubts
from talaria.platforms.slack.emoji import names_for
from talaria.platforms.slack.files import read_upload
from talaria.platforms.slack.outgoing import Post, make_posts
from talaria.platforms.slack.refusals import our_error
from talaria.platforms.slack.settings import SlackSettings
from talaria.platforms.slack.threads import OurThreads

T = TypeVar("T")
_KNOWN = 2000
_LONGEST_KEY = 200
_EVENT = "talaria_message"

log = logging.getLogger(__name__)


class Us(Struct, frozen=True):
    """Who we are in a workspace."""

    user_id: str
    name: str


class Posting:
    """What an app writes; ``posted`` has the threads of its latest messages, by channel and id."""

    def __init__(self, calls: Calls, settings: SlackSettings, threads: OurThreads) -> None:
        self._calls = calls
        self._settings = settings
        self._threads = threads
        self._doubts = Doubts(calls)
        self._us: Us | None = None
        self._marks: OrderedDict[tuple[str, str], list[str]] = OrderedDict()
        self.posted: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post a text, and its files behind it. Everything is looked at before the first message leaves.

        A message without text is named by its first file: Slack does not tell at once which message that made.
        """
        limit, key = self._settings.file_limit, key[:_LONGEST_KEY]
        uploads = [await asyncio.to_thread(read_upload, file, limit) for file in content.files]
        posts = make_posts(content)
        best = next(posts) if content.text.strip() or content.buttons or not uploads else None
        to = await self._reachable(to)
        try:
            message_id = await self._post(to, content, chain([best], posts), key) if best else ""
            if uploads:
                file_id = await self._upload(to, uploads)
                message_id = message_id or file_id
        except (Unreachable, SlowDown, asyncio.CancelledError):
            self._doubts.add(key)  # the text may be there
            raise
        ref = MessageRef(to, message_id)
        self.posted[to.chat_id, message_id] = to.thread_id
        if len(self.posted) > _KNOWN:
            self.posted.popitem(last=False)
        await self._threads.join(to.chat_id, to.thread_id)
        return ref

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace the text and the buttons of a message of ours."""
        await self._first_taken(make_posts(content), lambda post: self._update(ref, post))

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Put a mark on a message in place of the one that we put there before, or take it away."""
        marks = await self._marks_of(ref)
        wanted = names_for(emoji) if emoji else []
        kept = next((name for name in wanted[:1] if name in marks), "")
        for name in [one for one in marks if one != kept]:
            await self._mark(ref, name, take_away=True)
        self._remember(ref, [kept] if kept else [])
        if kept or not wanted:
            return
        for name in wanted:
            if await self._mark(ref, name):
                self._remember(ref, [name])
                return

    async def thread_of(self, channel: str, message_id: str) -> str:
        """Return the thread in which a message of ours stands; empty where it stands in none."""
        if (channel, message_id) in self.posted:
            return self.posted[channel, message_id]
        answer = await self._calls.attempt(self._calls.web.reactions_get(channel=channel, timestamp=message_id))
        message: dict[str, Any] = (answer or {}).get("message") or {}
        thread = str(message.get("thread_ts") or "")
        return "" if thread == message_id else thread

    async def _post(self, to: Address, content: Content, posts: Iterable[Post], key: str) -> str:
        found = await self._doubts.find(to, key)
        if found:  # with the words of that time, which need not be those of now
            await self.edit(MessageRef(to, found), content)
            return found
        payload = {"key": key, "reply_to": content.reply_to}
        return await self._first_taken(posts, lambda post: self._post_once(to, post, payload))

    async def _first_taken(self, posts: Iterable[Post], post: Callable[[Post], Awaitable[T]]) -> T:
        """Post what Slack takes, of several ways to say the same."""
        refused: NotTaken | None = None
        for one in posts:
            try:
                return await post(one)
            except NotTaken as no:
                if not no.refusal.is_about_blocks:
                    raise our_error(no.refusal) from no
                log.warning("the marks of a message were not taken: %s", no)
                refused = no
        assert refused is not None
        raise our_error(refused.refusal) from refused

    async def _post_once(self, to: Address, post: Post, payload: dict[str, str]) -> str:
        answer = await self._calls.ask_openly(
            self._calls.web.chat_postMessage(
                channel=to.chat_id,
                text=post.text,
                blocks=post.blocks or None,
                thread_ts=to.thread_id or None,
                # A preview is fetched by Slack from whoever is named in a link, with all that stands in it.
                unfurl_links=False,
                unfurl_media=False,
                metadata={"event_type": _EVENT, "event_payload": payload},
            )
        )
        return str(answer.get("ts", ""))

    async def _update(self, ref: MessageRef, post: Post) -> None:
        await self._calls.ask_openly(
            self._calls.web.chat_update(
                channel=ref.address.chat_id, ts=ref.message_id, text=post.text, blocks=post.blocks
            )
        )

    async def _upload(self, to: Address, uploads: list[dict[str, Any]]) -> str:
        answer = await self._calls.ask(
            self._calls.web.files_upload_v2(file_uploads=uploads, channel=to.chat_id, thread_ts=to.thread_id or None),
            self._settings.file_patience,
        )
        files: list[dict[str, Any]] = answer.get("files") or [{}]
        return str(files[0].get("id", ""))

    async def _reachable(self, to: Address) -> Address:
        """Return the private chat with a person where only the person is named."""
        if not to.chat_id.startswith(("U", "W")):
            return to
        answer = await self._calls.ask(self._calls.web.conversations_open(users=to.chat_id))
        channel: dict[str, Any] = answer.get("channel") or {}
        if not channel.get("id"):
            raise Rejected(f"there is no private chat with {to.chat_id}")
        return structs.replace(to, chat_id=str(channel["id"]), chat_type="private")

    async def _marks_of(self, ref: MessageRef) -> list[str]:
        """Return the names of our marks on a message."""
        channel, message_id = ref.address.chat_id, ref.message_id
        if (channel, message_id) in self._marks:
            return self._marks[channel, message_id]
        try:
            answer = await self._calls.ask_openly(
                self._calls.web.reactions_get(channel=channel, timestamp=message_id, full=True)
            )
        except NotTaken as no:
            if no.refusal.code not in ("missing_scope", "unknown_method"):
                raise our_error(no.refusal) from no
            return []  # then those of another process stay where they are
        message: dict[str, Any] = answer.get("message") or {}
        us = (self._us or await self.who()).user_id
        return [str(one["name"]) for one in message.get("reactions") or [] if us in (one.get("users") or [])]

    async def who(self) -> Us:
        """Return who we are there."""
        answer = await self._calls.ask(self._calls.web.auth_test())
        self._us = Us(str(answer.get("user_id", "")), str(answer.get("user", "")))
        return self._us

    async def _mark(self, ref: MessageRef, name: str, *, take_away: bool = False) -> bool:
        """Put a mark, or take it away; ``False`` where Slack knows no such mark."""
        web = self._calls.web
        change = web.reactions_remove if take_away else web.reactions_add
        try:
            await self._calls.ask_openly(change(channel=ref.address.chat_id, timestamp=ref.message_id, name=name))
        except NotTaken as no:
            if no.refusal.code == "invalid_name":
                return False
            if no.refusal.code not in ("already_reacted", "no_reaction"):
                raise our_error(no.refusal) from no
        return True

    def _remember(self, ref: MessageRef, marks: list[str]) -> None:
        self._marks[ref.address.chat_id, ref.message_id] = marks
        if len(self._marks) > _KNOWN:
            self._marks.popitem(last=False)

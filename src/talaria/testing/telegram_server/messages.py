"""Messages as people see them, their wire form, and pending updates for the bot, confirmed by offset."""

import asyncio
from collections.abc import Callable, Sequence

import msgspec
from msgspec import Struct, field

from talaria.testing.telegram_server.files import Media
from talaria.testing.telegram_server.parts import (
    ChatInfo,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    LinkPreviewOptions,
    MessageEntity,
    User,
    Wire,
)
from talaria.testing.telegram_server.refusals import conflict

KINDS = frozenset(
    {
        "message", "edited_message", "channel_post", "edited_channel_post", "business_connection", "business_message",
        "edited_business_message", "deleted_business_messages", "guest_message", "message_reaction",
        "message_reaction_count", "inline_query", "chosen_inline_result", "callback_query", "shipping_query",
        "pre_checkout_query", "purchased_paid_media", "poll", "poll_answer", "my_chat_member", "chat_member",
        "chat_join_request", "chat_boost", "removed_chat_boost", "managed_bot",
    }
)  # fmt: skip
DEFAULT_KINDS = KINDS - {"chat_member", "message_reaction", "message_reaction_count"}
_FIRST_ID = 870_000_001


class Changes:
    """A changing state, and the tasks waiting for it."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def happened(self) -> None:
        """Wake all waiting tasks."""
        self._next.set()
        self._next = asyncio.Event()

    async def until(self, holds: Callable[[], bool], *, within: float) -> None:
        """Return as soon as ``holds()``; raise `TimeoutError` after so many seconds."""
        async with asyncio.timeout(within):
            while not holds():
                await self._next.wait()


class Update(Struct, frozen=True):
    """An update for the bot."""

    id: int
    kind: str
    body: Wire

    def wire(self) -> Wire:
        """Return the ``Update``."""
        return {"update_id": self.id, self.kind: self.body}


class Updates:
    """The queue of a bot's updates; ``all`` has every one that was ever in it."""

    def __init__(self, changes: Changes) -> None:
        self.all: list[Update] = []
        self.pending: list[Update] = []
        self.allowed = DEFAULT_KINDS
        self.webhook = False
        self._changes = changes
        self._repeated: list[Update] = []
        self._poller = 0

    def put(self, kind: str, body: Wire) -> Update | None:
        """Add an update, unless the bot did not ask for its kind."""
        if kind not in self.allowed:
            return None
        update = Update(_FIRST_ID + len(self.all), kind, body)
        self.all.append(update)
        self.pending.append(update)
        self._changes.happened()
        return update

    def put_again(self, update: Update, times: int) -> None:
        """Deliver an update so many times more, whatever the bot has confirmed."""
        self._repeated += [update] * times
        self._changes.happened()

    def allow(self, kinds: Sequence[str] | None) -> None:
        """Take note of what the bot wants; an empty list is the default, nothing leaves it as it is."""
        if kinds is not None:
            self.allowed = KINDS.intersection(kinds) if kinds else DEFAULT_KINDS

    def forget(self) -> None:
        """Drop all that waits."""
        self.pending.clear()
        self._repeated.clear()

    def confirm(self, offset: int) -> None:
        """Delete updates before an offset; a negative one keeps that many of the last."""
        if offset < 0:
            self.pending = self.pending[offset:]
        elif offset:
            self.pending = [update for update in self.pending if update.id >= offset]

    def first(self) -> Update | None:
        """Return the next updates without removing them."""
        return next(iter([*self._repeated, *self.pending]), None)

    def delivered(self, update: Update) -> None:
        """Take away what `first` returned."""
        (self._repeated if update in self._repeated else self.pending).remove(update)

    async def poll(self, *, limit: int, timeout: float) -> list[Update]:  # noqa: ASYNC109 - Telegram's own word
        """Wait for updates; a second request replaces one that is still waiting."""
        self._poller += 1
        mine = self._poller
        self._changes.happened()
        try:
            await self._changes.until(
                lambda: bool(self.first()) or self._poller != mine or self.webhook, within=max(timeout, 0.001)
            )
        except TimeoutError:
            return []
        if self.webhook:
            raise conflict("terminated by setWebhook request")
        if self._poller != mine:
            raise conflict("terminated by other getUpdates request; make sure that only one bot instance is running")
        return self._take(limit)

    def _take(self, limit: int) -> list[Update]:
        once = list({update.id: update for update in self._repeated}.values())
        for update in once:
            self._repeated.remove(update)
        return [*once, *self.pending][:limit]


class Version(Struct, frozen=True):
    """An earlier version of an edited message."""

    text: str
    entities: tuple[MessageEntity, ...]
    buttons: InlineKeyboardMarkup | None


class Topic(Struct, eq=False):
    """A thread of a forum, or of a private chat with topics."""

    id: int
    name: str
    icon_color: int
    closed: bool = False
    deleted: bool = False

    def wire(self) -> Wire:
        """Return the ``ForumTopic``."""
        return {"message_thread_id": self.id, "name": self.name, "icon_color": self.icon_color}


class Message(Struct, eq=False, kw_only=True):
    """One message in a chat; ``text`` is the caption if there is a file.

    ``history`` has the earlier versions, the oldest first. ``reactions`` are stored by user id. In a channel there is
    no sender; ``from_bot`` marks the bot's posts there too. ``update`` is the update sent to the bot, if any.
    """

    info: ChatInfo
    id: int
    sender: User | None
    date: int
    by_bot: bool = False
    text: str = ""
    entities: tuple[MessageEntity, ...] = ()
    media: Media | None = None
    album: str = ""
    thread: int | None = None
    in_topic: bool = False
    reply_to: "Message | None" = None
    markup: InlineKeyboardMarkup | None = None
    preview: LinkPreviewOptions | None = None
    service: Wire = field(default_factory=dict)
    history: list[Version] = field(default_factory=list)
    reactions: dict[int, tuple[str, ...]] = field(default_factory=dict)
    edited: int | None = None
    deleted: bool = False
    update: Update | None = None

    @property
    def from_bot(self) -> bool:
        """Return whether the bot wrote it."""
        return self.by_bot or (self.sender is not None and self.sender.is_bot)

    @property
    def buttons(self) -> tuple[InlineKeyboardButton, ...]:
        """All buttons, row by row."""
        return tuple(button for row in self.markup.inline_keyboard for button in row) if self.markup else ()

    def styled(self, kind: str) -> list[str]:
        """Return the stretches of the text that have an entity of this kind."""
        units = self.text.encode("utf-16-le")
        return [
            units[2 * one.offset : 2 * one.end].decode("utf-16-le", "replace")
            for one in self.entities
            if one.type == kind
        ]

    def change(
        self, text: str, entities: Sequence[MessageEntity], markup: InlineKeyboardMarkup | None, at: int
    ) -> None:
        """Edit it and keep what stood here."""
        self.history.append(Version(self.text, self.entities, self.markup))
        self.text, self.entities, self.markup, self.edited = text, tuple(entities), markup, at

    def wire(self, *, whole: bool = True) -> Wire:
        """Return the ``Message``; one that is not whole stands in another and has no message inside."""
        answer: Wire = {"message_id": self.id, "date": self.date, "chat": self.info.wire()}
        if self.sender is not None:
            answer["from"] = self.sender.wire()
        else:
            answer["sender_chat"] = self.info.wire()
        if self.thread is not None:
            answer["message_thread_id"] = self.thread
        if self.in_topic:
            answer["is_topic_message"] = True
        if whole and self.reply_to is not None and not self.reply_to.deleted:
            answer["reply_to_message"] = self.reply_to.wire(whole=False)
        if self.edited is not None:
            answer["edit_date"] = self.edited
        if self.album:
            answer["media_group_id"] = self.album
        return answer | self._make_content() | self.service

    def _make_content(self) -> Wire:
        content: Wire = {}
        if self.media is not None:
            content[self.media.kind] = self.media.field
        text, entities = ("caption", "caption_entities") if self.media else ("text", "entities")
        if self.text:
            content[text] = self.text
        if self.entities:
            content[entities] = [msgspec.to_builtins(entity) for entity in self.entities]
        if self.markup is not None:
            content["reply_markup"] = msgspec.to_builtins(self.markup)
        if self.preview is not None:
            content["link_preview_options"] = msgspec.to_builtins(self.preview)
        return content

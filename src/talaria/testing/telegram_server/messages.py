"""Messages: what people see, and their wire form."""

from collections.abc import Sequence

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
from talaria.testing.telegram_server.updates import Update


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

    place: ChatInfo
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
        answer: Wire = {"message_id": self.id, "date": self.date, "chat": self.place.wire()}
        if self.sender is not None:
            answer["from"] = self.sender.wire()
        else:
            answer["sender_chat"] = self.place.wire()
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
        return answer | self._content() | self.service

    def _content(self) -> Wire:
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

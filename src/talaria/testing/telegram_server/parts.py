"""Wire form of people and chats, and of parts of messages: entities, keyboards, commands."""

from typing import Literal

from msgspec import Struct

ChatType = Literal["private", "group", "supergroup", "channel"]
Wire = dict[str, object]
EntityType = Literal[
    "mention", "hashtag", "cashtag", "bot_command", "url", "email", "phone_number", "bold", "italic", "underline",
    "strikethrough", "spoiler", "blockquote", "expandable_blockquote", "code", "pre", "text_link", "text_mention",
    "custom_emoji", "date_time",
]  # fmt: skip


class User(Struct, frozen=True, kw_only=True):
    """A person or a bot."""

    id: int
    first_name: str
    last_name: str = ""
    username: str = ""
    is_bot: bool = False

    def wire(self) -> Wire:
        """Return the ``User`` that stands in messages."""
        return _drop_empty(
            id=self.id,
            is_bot=self.is_bot,
            first_name=self.first_name,
            last_name=self.last_name,
            username=self.username,
            language_code="" if self.is_bot else "en",
        )


class ChatInfo(Struct, frozen=True, kw_only=True):
    """The description of a chat."""

    id: int
    type: ChatType
    title: str = ""
    username: str = ""
    first_name: str = ""
    last_name: str = ""
    is_forum: bool = False

    def wire(self) -> Wire:
        """Return the ``Chat`` that stands in messages."""
        return _drop_empty(
            id=self.id,
            type=self.type,
            title=self.title,
            username=self.username,
            first_name=self.first_name,
            last_name=self.last_name,
            is_forum=self.is_forum or None,
        )


def _drop_empty(**fields: object) -> Wire:
    return {name: value for name, value in fields.items() if value is not None and value != ""}


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """An object inside a request; unknown fields are refused."""


class MessageEntity(Part, frozen=True, kw_only=True):
    """A formatted range of text; offset and length count UTF-16 code units."""

    type: EntityType
    offset: int
    length: int
    url: str | None = None
    user: dict[str, object] | None = None
    language: str | None = None
    custom_emoji_id: str | None = None
    unix_time: int | None = None
    date_time_format: str | None = None

    @property
    def end(self) -> int:
        """Return where the stretch is over."""
        return self.offset + self.length


class LinkPreviewOptions(Part, frozen=True, kw_only=True):
    """Options for showing a link in the text."""

    is_disabled: bool | None = None
    url: str | None = None
    prefer_small_media: bool | None = None
    prefer_large_media: bool | None = None
    show_above_text: bool | None = None


class ReplyParameters(Part, frozen=True, kw_only=True):
    """Which message is answered."""

    message_id: int
    chat_id: int | str | None = None
    allow_sending_without_reply: bool | None = None
    quote: str | None = None
    quote_parse_mode: str | None = None
    quote_entities: list[MessageEntity] | None = None
    quote_position: int | None = None
    checklist_task_id: int | None = None
    poll_option_id: str | None = None


class InlineKeyboardButton(Part, frozen=True, kw_only=True):
    """A button below a message."""

    text: str
    icon_custom_emoji_id: str | None = None
    style: str | None = None
    url: str | None = None
    callback_data: str | None = None
    web_app: dict[str, object] | None = None
    login_url: dict[str, object] | None = None
    switch_inline_query: str | None = None
    switch_inline_query_current_chat: str | None = None
    switch_inline_query_chosen_chat: dict[str, object] | None = None
    copy_text: dict[str, object] | None = None
    callback_game: dict[str, object] | None = None
    pay: bool | None = None


class InlineKeyboardMarkup(Part, frozen=True, kw_only=True):
    """Rows of buttons below a message."""

    inline_keyboard: list[list[InlineKeyboardButton]]


class ReplyKeyboardMarkup(Part, frozen=True, kw_only=True):
    """A keyboard in place of the person's own."""

    keyboard: list[list[dict[str, object] | str]]
    is_persistent: bool | None = None
    resize_keyboard: bool | None = None
    one_time_keyboard: bool | None = None
    input_field_placeholder: str | None = None
    selective: bool | None = None


class ReplyKeyboardRemove(Part, frozen=True, kw_only=True):
    """The person's own keyboard again."""

    remove_keyboard: bool
    selective: bool | None = None


class ForceReply(Part, frozen=True, kw_only=True):
    """The person is asked to reply."""

    force_reply: bool
    input_field_placeholder: str | None = None
    selective: bool | None = None


class ReactionTypeEmoji(Part, frozen=True, kw_only=True, tag_field="type", tag="emoji"):
    """A reaction by an emoji."""

    emoji: str


class ReactionTypeCustomEmoji(Part, frozen=True, kw_only=True, tag_field="type", tag="custom_emoji"):
    """A reaction by a sticker."""

    custom_emoji_id: str


class ReactionTypePaid(Part, frozen=True, kw_only=True, tag_field="type", tag="paid"):
    """A reaction that costs something."""


class BotCommand(Part, frozen=True, kw_only=True):
    """A line in the menu of commands."""

    command: str
    description: str


ScopeType = Literal[
    "default",
    "all_private_chats",
    "all_group_chats",
    "all_chat_administrators",
    "chat",
    "chat_administrators",
    "chat_member",
]


class BotCommandScope(Part, frozen=True, kw_only=True):
    """Scope in which a menu of commands is shown."""

    type: ScopeType
    chat_id: int | str | None = None
    user_id: int | None = None


class InputMedia(Part, frozen=True, kw_only=True):
    """One file of an album: a photo or a document."""

    type: Literal["photo", "document"]
    media: str
    thumbnail: str | None = None
    caption: str | None = None
    parse_mode: str | None = None
    caption_entities: list[MessageEntity] | None = None
    show_caption_above_media: bool | None = None
    has_spoiler: bool | None = None
    disable_content_type_detection: bool | None = None


Reaction = ReactionTypeEmoji | ReactionTypeCustomEmoji | ReactionTypePaid
ReplyMarkup = InlineKeyboardMarkup | ReplyKeyboardMarkup | ReplyKeyboardRemove | ForceReply

"""Post and edit messages on Telegram: formatted text, files with captions, buttons."""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from msgspec import Struct, structs
from telegram import InlineKeyboardButton, InlineKeyboardMarkup, InputFile, Message, MessageEntity, ReplyParameters

from talaria.contracts.platform import Button, Content, MessageRef
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.core.messages import File, Image
from talaria.platforms.telegram.client import ApiClient
from talaria.platforms.telegram.errors import Refusal, to_platform_error
from talaria.platforms.telegram.formatting import Entity, Formatted, utf16_length
from talaria.platforms.telegram.outgoing import (
    CAPTION_LIMIT,
    FILE_LIMIT,
    FileKind,
    arrange_buttons,
    file_kind,
    format_text,
    outgoing_file_name,
    reaction_candidates,
)
from talaria.platforms.telegram.settings import TelegramSettings

_T = TypeVar("_T")
_NO_TEXT = Formatted("")
_MOST_POSTS = 2000


class _Upload(Struct, frozen=True):
    """A file ready to send: its bytes under a name, or a URL that Telegram fetches itself."""

    kind: FileKind
    file: InputFile | str


class _Destination(Struct, frozen=True):
    """The chat of a message, and what it answers."""

    address: Address
    reply_to: str = ""

    @property
    def thread(self) -> int | None:
        """Return the topic."""
        return _parse_id(self.address.thread_id)

    @property
    def reply(self) -> ReplyParameters | None:
        """Return the message being answered; the answer is posted even if that is gone."""
        replied_id = _parse_id(self.reply_to)
        return None if replied_id is None else ReplyParameters(replied_id, allow_sending_without_reply=True)


class MessagePoster:
    """The bot's messages; ``posted`` has the topics of its latest ones, by chat and id.

    An edit that changes nothing is not sent: Telegram refuses it, and counts it towards the flood limit.
    """

    def __init__(self, client: ApiClient, settings: TelegramSettings) -> None:
        self._client = client
        self._settings = settings
        self.posted: dict[tuple[str, str], str] = {}
        self._digests: dict[tuple[str, str], int] = {}

    async def send(self, to: Address, content: Content) -> MessageRef:
        """Post a text, or a file with a caption; further files follow in separate messages.

        Everything is checked before the first message is sent. Returns the message with the text.
        """
        keyboard = _build_keyboard(content.buttons)
        uploads = [await asyncio.to_thread(_prepare_upload, file) for file in content.files]
        formatted = format_text(content.text) if content.text.strip() or not uploads else _NO_TEXT
        destination = _Destination(to, content.reply_to)
        if uploads and (len(uploads) > 1 or utf16_length(formatted.text) > CAPTION_LIMIT) and formatted.text:
            first = await self._send_text(destination, formatted, keyboard)
        elif uploads:
            first = await self._send_file(destination, uploads.pop(0), formatted, keyboard)
        else:
            first = await self._send_text(destination, formatted, keyboard)
        destination = _Destination(structs.replace(to, chat_id=str(first.chat.id)))
        for upload in uploads:
            await self._send_file(destination, upload, _NO_TEXT, None)
        ref = MessageRef(destination.address, str(first.message_id))
        self._remember_topic(ref)
        self._remember_digest(ref, formatted, content.buttons)
        return ref

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace a text, or the caption of a file."""
        bot, chat, message = self._client.bot, ref.address.chat_id, _parse_id(ref.message_id)
        if message is None:
            raise Rejected(f"there is no message {ref.message_id!r} on Telegram")
        keyboard = _build_keyboard(content.buttons)
        formatted = format_text(content.text)
        if self._digests.pop((chat, ref.message_id), None) == _digest(formatted, content.buttons):
            self._remember_digest(ref, formatted, content.buttons)
            return

        def text(shown: Formatted) -> Awaitable[object]:
            return bot.edit_message_text(
                shown.text, chat, message, entities=_entities(shown) or None, reply_markup=keyboard
            )

        def caption(shown: Formatted) -> Awaitable[object]:
            return bot.edit_message_caption(
                chat, message, caption=shown.text, caption_entities=_entities(shown) or None, reply_markup=keyboard
            )

        try:
            try:
                await self._send_with_entities(formatted, text)
            except Refusal as refusal:
                if not refusal.is_caption_only:
                    raise
                await self._send_with_entities(format_text(content.text, CAPTION_LIMIT), caption)
        except Refusal as refusal:
            if not refusal.is_not_modified:
                raise to_platform_error(refusal) from refusal
        self._remember_digest(ref, formatted, content.buttons)

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Mark a message with the nearest emoji that Telegram offers there, or remove the mark."""
        chat, message = ref.address.chat_id, _parse_id(ref.message_id)
        if message is None:
            raise Rejected(f"there is no message {ref.message_id!r} on Telegram")
        *others, last = reaction_candidates(emoji) if emoji else [None]
        try:
            for reaction in others:
                try:
                    await self._client.ask_raw(self._client.bot.set_message_reaction(chat, message, reaction))
                except Refusal as refusal:
                    if not refusal.is_invalid_reaction:
                        raise
                else:
                    return
            await self._client.ask_raw(self._client.bot.set_message_reaction(chat, message, last))
        except Refusal as refusal:
            raise to_platform_error(refusal) from refusal

    def _remember_digest(self, ref: MessageRef, formatted: Formatted, buttons: tuple[Button, ...]) -> None:
        key = (ref.address.chat_id, ref.message_id)
        self._digests.pop(key, None)
        self._digests[key] = _digest(formatted, buttons)
        if len(self._digests) > _MOST_POSTS:
            del self._digests[next(iter(self._digests))]

    def _remember_topic(self, ref: MessageRef) -> None:
        self.posted[ref.address.chat_id, ref.message_id] = ref.address.thread_id
        if len(self.posted) > _MOST_POSTS:
            del self.posted[next(iter(self.posted))]

    async def _send_text(
        self, destination: _Destination, formatted: Formatted, keyboard: InlineKeyboardMarkup | None
    ) -> Message:
        def post(chat: str) -> Awaitable[Message]:
            return self._send_with_entities(
                formatted,
                lambda shown: self._client.bot.send_message(
                    chat,
                    shown.text,
                    entities=_entities(shown) or None,
                    message_thread_id=destination.thread,
                    reply_parameters=destination.reply,
                    reply_markup=keyboard,
                ),
            )

        return await self._follow_migration(destination.address.chat_id, post)

    async def _send_file(
        self, destination: _Destination, upload: _Upload, formatted: Formatted, keyboard: InlineKeyboardMarkup | None
    ) -> Message:
        bot = self._client.bot
        senders: dict[FileKind, Callable[..., Awaitable[Message]]] = {
            "photo": bot.send_photo,
            "voice": bot.send_voice,
            "document": bot.send_document,
        }

        def post(chat: str) -> Awaitable[Message]:
            return self._send_with_entities(
                formatted,
                lambda shown: senders[upload.kind](
                    chat,
                    upload.file,
                    caption=shown.text or None,
                    caption_entities=_entities(shown) or None,
                    message_thread_id=destination.thread,
                    reply_parameters=destination.reply,
                    reply_markup=keyboard,
                    read_timeout=self._settings.file_patience.total_seconds(),
                ),
                self._settings.file_patience,
            )

        return await self._follow_migration(destination.address.chat_id, post)

    async def _send_with_entities(
        self, formatted: Formatted, post: Callable[[Formatted], Awaitable[_T]], patience: timedelta | None = None
    ) -> _T:
        """Post with formatting; if Telegram rejects it, post the same text without."""
        try:
            return await self._client.ask_raw(post(formatted), patience)
        except Refusal as refusal:
            if not (formatted.entities and refusal.is_about_entities):
                raise
        return await self._client.ask_raw(post(Formatted(formatted.text)), patience)

    async def _follow_migration(self, chat: str, post: Callable[[str], Awaitable[Message]]) -> Message:
        """Post in a chat, or in its successor: a group gets another id when it becomes a supergroup."""
        try:
            try:
                return await post(chat)
            except Refusal as refusal:
                if not refusal.moved_to:
                    raise
                return await post(str(refusal.moved_to))
        except Refusal as refusal:
            raise to_platform_error(refusal) from refusal


def _parse_id(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else None


def _entities(formatted: Formatted) -> list[MessageEntity]:
    return [_entity(one) for one in formatted.entities]


def _entity(one: Entity) -> MessageEntity:
    url = one.value if one.kind == "text_link" else None
    language = one.value or None if one.kind == "pre" else None
    return MessageEntity(one.kind, one.offset, one.length, url=url, language=language)


def _digest(formatted: Formatted, buttons: tuple[Button, ...]) -> int:
    return hash((formatted.text, tuple(formatted.entities), buttons))


def _build_keyboard(buttons: tuple[Button, ...]) -> InlineKeyboardMarkup | None:
    if not buttons:
        return None
    rows = [
        [InlineKeyboardButton(one.label, callback_data=one.value) for one in row] for row in arrange_buttons(buttons)
    ]
    return InlineKeyboardMarkup(rows)


def _prepare_upload(file: File | Image) -> _Upload:
    """Read a file, or raise `Rejected` if Telegram wouldn't accept it."""
    if file.source.startswith(("http://", "https://")):
        return _Upload(file_kind(file, 0), file.source)
    data = _read_bytes(file.source)
    if not data:
        raise Rejected(f"{outgoing_file_name(file)} is empty, and Telegram doesn't accept empty files")
    return _Upload(file_kind(file, len(data)), InputFile(data, filename=outgoing_file_name(file)))


def _read_bytes(source: str) -> bytes:
    try:
        if source.startswith("data:"):
            return base64.b64decode(source.partition(",")[2], validate=True)
        path = Path(source.removeprefix("file://"))
        size = path.stat().st_size
        if size > FILE_LIMIT:
            raise Rejected(f"{path.name} has {size / 1024**2:.0f} MB; Telegram accepts {FILE_LIMIT // 1024**2} MB")
        return path.read_bytes()
    except (OSError, binascii.Error) as error:
        raise Rejected(f"can't read a file: {error}") from error

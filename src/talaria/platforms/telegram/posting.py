"""Post and edit: texts with their marks, files with captions, buttons below."""

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
from talaria.platforms.telegram.calls import Calls
from talaria.platforms.telegram.entities import Entity, Formatted, utf16_length
from talaria.platforms.telegram.outgoing import (
    CAPTION_LIMIT,
    FILE_LIMIT,
    FileKind,
    arrange,
    format_text,
    kind_of,
    marks_for,
    name_of,
)
from talaria.platforms.telegram.refusals import Refusal, our_error
from talaria.platforms.telegram.settings import TelegramSettings

_T = TypeVar("_T")
_NO_TEXT = Formatted("")
_KNOWN = 2000


class _Upload(Struct, frozen=True):
    """A file that is ready to go: its bytes under a name, or an address that Telegram fetches itself."""

    kind: FileKind
    file: InputFile | str


class _Place(Struct, frozen=True):
    """Where a message goes, and what it answers."""

    address: Address
    reply_to: str = ""

    @property
    def thread(self) -> int | None:
        """The topic."""
        return _number(self.address.thread_id)

    @property
    def reply(self) -> ReplyParameters | None:
        """What is answered; the answer is posted all the same if that is gone."""
        answered = _number(self.reply_to)
        return None if answered is None else ReplyParameters(answered, allow_sending_without_reply=True)


class Posting:
    """What a bot writes; ``posted`` has the topics of its latest messages, by chat and id.

    An edit that would change nothing is not sent: Telegram refuses it, and counts it towards the flood limit.
    """

    def __init__(self, calls: Calls, settings: TelegramSettings) -> None:
        self._calls = calls
        self._settings = settings
        self.posted: dict[tuple[str, str], str] = {}
        self._shown: dict[tuple[str, str], int] = {}

    async def send(self, to: Address, content: Content) -> MessageRef:
        """Post a text, or a file with a short text below; further files follow in messages of their own.

        Everything is looked at before the first message leaves. Returns the message that has the text.
        """
        keyboard = _keyboard(content.buttons)
        uploads = [await asyncio.to_thread(_upload, file) for file in content.files]
        formatted = format_text(content.text) if content.text.strip() or not uploads else _NO_TEXT
        place = _Place(to, content.reply_to)
        if uploads and (len(uploads) > 1 or utf16_length(formatted.text) > CAPTION_LIMIT) and formatted.text:
            first = await self._send_text(place, formatted, keyboard)
        elif uploads:
            first = await self._send_file(place, uploads.pop(0), formatted, keyboard)
        else:
            first = await self._send_text(place, formatted, keyboard)
        place = _Place(structs.replace(to, chat_id=str(first.chat.id)))
        for upload in uploads:
            await self._send_file(place, upload, _NO_TEXT, None)
        ref = MessageRef(place.address, str(first.message_id))
        self._remember(ref)
        self._note_shown(ref, formatted, content.buttons)
        return ref

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace a text, or the caption of a file."""
        bot, chat, message = self._calls.bot, ref.address.chat_id, _number(ref.message_id)
        if message is None:
            raise Rejected(f"there is no message {ref.message_id!r} on Telegram")
        keyboard = _keyboard(content.buttons)
        formatted = format_text(content.text)
        if self._shown.pop((chat, ref.message_id), None) == _digest(formatted, content.buttons):
            self._note_shown(ref, formatted, content.buttons)
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
                await self._marked_if_possible(formatted, text)
            except Refusal as refusal:
                if not refusal.wants_a_caption:
                    raise
                await self._marked_if_possible(format_text(content.text, CAPTION_LIMIT), caption)
        except Refusal as refusal:
            if not refusal.changes_nothing:
                raise our_error(refusal) from refusal
        self._note_shown(ref, formatted, content.buttons)

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Put a mark on a message, the nearest that Telegram offers there, or take it away."""
        chat, message = ref.address.chat_id, _number(ref.message_id)
        if message is None:
            raise Rejected(f"there is no message {ref.message_id!r} on Telegram")
        *others, last = marks_for(emoji) if emoji else [None]
        try:
            for mark in others:
                try:
                    await self._calls.ask_openly(self._calls.bot.set_message_reaction(chat, message, mark))
                except Refusal as refusal:
                    if not refusal.wants_another_mark:
                        raise
                else:
                    return
            await self._calls.ask_openly(self._calls.bot.set_message_reaction(chat, message, last))
        except Refusal as refusal:
            raise our_error(refusal) from refusal

    def _note_shown(self, ref: MessageRef, formatted: Formatted, buttons: tuple[Button, ...]) -> None:
        key = (ref.address.chat_id, ref.message_id)
        self._shown.pop(key, None)
        self._shown[key] = _digest(formatted, buttons)
        if len(self._shown) > _KNOWN:
            del self._shown[next(iter(self._shown))]

    def _remember(self, ref: MessageRef) -> None:
        self.posted[ref.address.chat_id, ref.message_id] = ref.address.thread_id
        if len(self.posted) > _KNOWN:
            del self.posted[next(iter(self.posted))]

    async def _send_text(self, place: _Place, formatted: Formatted, keyboard: InlineKeyboardMarkup | None) -> Message:
        def post(chat: str) -> Awaitable[Message]:
            return self._marked_if_possible(
                formatted,
                lambda shown: self._calls.bot.send_message(
                    chat,
                    shown.text,
                    entities=_entities(shown) or None,
                    message_thread_id=place.thread,
                    reply_parameters=place.reply,
                    reply_markup=keyboard,
                ),
            )

        return await self._wherever_it_moved(place.address.chat_id, post)

    async def _send_file(
        self, place: _Place, upload: _Upload, formatted: Formatted, keyboard: InlineKeyboardMarkup | None
    ) -> Message:
        bot = self._calls.bot
        senders: dict[FileKind, Callable[..., Awaitable[Message]]] = {
            "photo": bot.send_photo,
            "voice": bot.send_voice,
            "document": bot.send_document,
        }

        def post(chat: str) -> Awaitable[Message]:
            return self._marked_if_possible(
                formatted,
                lambda shown: senders[upload.kind](
                    chat,
                    upload.file,
                    caption=shown.text or None,
                    caption_entities=_entities(shown) or None,
                    message_thread_id=place.thread,
                    reply_parameters=place.reply,
                    reply_markup=keyboard,
                    read_timeout=self._settings.file_patience.total_seconds(),
                ),
                self._settings.file_patience,
            )

        return await self._wherever_it_moved(place.address.chat_id, post)

    async def _marked_if_possible(
        self, formatted: Formatted, post: Callable[[Formatted], Awaitable[_T]], patience: timedelta | None = None
    ) -> _T:
        """Post with marks; where Telegram does not take them, post the same text without."""
        try:
            return await self._calls.ask_openly(post(formatted), patience)
        except Refusal as refusal:
            if not (formatted.entities and refusal.is_about_marks):
                raise
        return await self._calls.ask_openly(post(Formatted(formatted.text)), patience)

    async def _wherever_it_moved(self, chat: str, post: Callable[[str], Awaitable[Message]]) -> Message:
        """Post in a chat, or in the one that it has become: a group gets another id when it grows up."""
        try:
            try:
                return await post(chat)
            except Refusal as refusal:
                if not refusal.moved_to:
                    raise
                return await post(str(refusal.moved_to))
        except Refusal as refusal:
            raise our_error(refusal) from refusal


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else None


def _entities(formatted: Formatted) -> list[MessageEntity]:
    return [_entity(one) for one in formatted.entities]


def _entity(one: Entity) -> MessageEntity:
    url = one.value if one.kind == "text_link" else None
    language = one.value or None if one.kind == "pre" else None
    return MessageEntity(one.kind, one.offset, one.length, url=url, language=language)


def _digest(formatted: Formatted, buttons: tuple[Button, ...]) -> int:
    return hash((formatted.text, tuple(formatted.entities), buttons))


def _keyboard(buttons: tuple[Button, ...]) -> InlineKeyboardMarkup | None:
    if not buttons:
        return None
    rows = [[InlineKeyboardButton(one.label, callback_data=one.value) for one in row] for row in arrange(buttons)]
    return InlineKeyboardMarkup(rows)


def _upload(file: File | Image) -> _Upload:
    """Read a file, or raise `Rejected` if Telegram would not take it."""
    if file.source.startswith(("http://", "https://")):
        return _Upload(kind_of(file, 0), file.source)
    data = _bytes_of(file.source)
    if not data:
        raise Rejected(f"{name_of(file)} is empty, and Telegram takes no empty files")
    return _Upload(kind_of(file, len(data)), InputFile(data, filename=name_of(file)))


def _bytes_of(source: str) -> bytes:
    try:
        if source.startswith("data:"):
            return base64.b64decode(source.partition(",")[2], validate=True)
        path = Path(source.removeprefix("file://"))
        size = path.stat().st_size
        if size > FILE_LIMIT:
            raise Rejected(f"{path.name} has {size / 1024**2:.0f} MB, and Telegram takes {FILE_LIMIT // 1024**2} MB")
        return path.read_bytes()
    except (OSError, binascii.Error) as error:
        raise Rejected(f"a file cannot be read: {error}") from error

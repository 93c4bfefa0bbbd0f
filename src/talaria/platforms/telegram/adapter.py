"""The Telegram adapter: a bot over the Bot API."""

import asyncio
import base64
import binascii
import logging
import mimetypes
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct, structs

from talaria.contracts.platform import (
    Attachment,
    Button,
    Content,
    Incoming,
    MessageRef,
    Platform,
    PlatformAccount,
    PlatformCapabilities,
    Rate,
    Rates,
)
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, PlatformError, Refused, Rejected
from talaria.core.messages import File, Image
from talaria.http_client.connection import FormFile
from talaria.platforms.content import sanitize_text, save_file
from talaria.platforms.telegram.client import BotApi, Refusal, to_platform_error
from talaria.platforms.telegram.formatting import TEXT_LIMIT, Entity, Formatted, format_text, utf16_length
from talaria.platforms.telegram.incoming import BotIdentity, ParsedUpdate, read_updates
from talaria.platforms.telegram.outgoing import (
    CAPTION_LIMIT,
    FILE_LIMIT,
    TOPIC_NAME_LIMIT,
    FileKind,
    arrange_buttons,
    build_menu,
    file_kind,
    outgoing_file_name,
    reaction_candidates,
)
from talaria.platforms.telegram.receiver import (
    AlbumCollector,
    AlbumStore,
    DurableAlbumStore,
    MemoryAlbumStore,
    PolledUpdates,
    RecentMessages,
    UpdatePoller,
    WebhookServer,
)
from talaria.platforms.telegram.settings import TelegramSettings, Webhook
from talaria.platforms.telegram.wire import FilePath, ForumTopic, TelegramEntity, TelegramMessage, TelegramUser


def make_topic_name(name: str) -> str:
    """Return a name for a topic, on one line and short enough."""
    return " ".join(sanitize_text(name).split())[:TOPIC_NAME_LIMIT] or "Conversation"


_T = TypeVar("_T")
_Keyboard = dict[str, list[list[dict[str, str]]]]
_NO_TEXT = Formatted("")
_MOST_POSTS = 2000
ABILITIES = PlatformCapabilities(
    text_limit=TEXT_LIMIT,
    text_unit="utf16",
    edits=True,
    edit_pace=timedelta(seconds=1.5),
    typing=True,
    buttons=True,
    threads=True,
    reactions=True,
    exclusive=True,
    file_limit=FILE_LIMIT,
    # https://core.telegram.org/bots/faq: 30 messages per second, one per second in a chat, 20 per minute in a group.
    rates=Rates(
        network=Rate(per_second=30, burst=30), chat=Rate(per_second=1, burst=3), group=Rate(per_second=0.25, burst=5)
    ),
)
_BEST_EFFORT = timedelta(seconds=5)
DOWNLOAD_LIMIT = 20 * 1024 * 1024
_WEBHOOK = "webhook_"
log = logging.getLogger(__name__)


class Telegram:
    """One bot; ``commands`` are the names and help texts of its menu, ``state_store`` stores the parts of an album.

    Messages can be sent whether it is connected or not. The creator closes it.
    """

    def __init__(
        self,
        settings: TelegramSettings,
        commands: Sequence[tuple[str, str]] = (),
        state_store: AlbumStore | None = None,
    ) -> None:
        self.name = settings.name
        self.abilities = ABILITIES
        self._settings = settings
        self._commands = build_menu(commands)
        self._state_store = state_store or MemoryAlbumStore()
        self._recent = RecentMessages()
        self._client = BotApi(settings)
        self._poster = MessagePoster(self._client, settings)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Log in and yield updates; each is confirmed when the next one is requested."""
        identity = await self._log_in()
        if self._settings.webhook is None:
            await self._client.ask("deleteWebhook", bool, drop_pending_updates=False)
            poller = UpdatePoller(self._client, self._settings)
            await poller.start()
            try:
                yield PolledUpdates(poller, identity, self._recent, self._answer_callback)
            finally:
                await poller.part()
        else:
            server = WebhookServer(self._client, self._settings.webhook, self._settings)
            async with server.serve(), aclosing(self._receive_pushed(server, identity)) as updates:
                yield updates

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post one message, then further files; Telegram has no idempotency keys."""
        return await self._poster.send(to, content)

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace the text and the buttons of a posted message."""
        await self._poster.edit(ref, content)

    async def show_typing(self, to: Address) -> None:
        """Show a typing indicator for five seconds."""
        thread = int(to.thread_id) if to.thread_id else None
        await self._client.ask("sendChatAction", bool, chat_id=to.chat_id, action="typing", message_thread_id=thread)

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Replace our mark on a message, with the nearest emoji that Telegram offers."""
        await self._poster.react(ref, emoji)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file into a folder under a safe name and return its path."""
        if attachment.size > DOWNLOAD_LIMIT:
            raise Rejected(f"Telegram lets bots download files of at most {DOWNLOAD_LIMIT // 1024**2} MB")
        file = await self._client.ask("getFile", FilePath, file_id=attachment.reference)
        try:
            data = await self._client.download(file.file_path, self._settings.file_patience, DOWNLOAD_LIMIT)
        except Refusal as refusal:
            if refusal.code == 404:  # here the file is unknown, not the bot
                raise Rejected(f"{attachment.name} is no longer available on Telegram") from refusal
            raise to_platform_error(refusal) from refusal
        return await asyncio.to_thread(save_file, data, attachment.name, folder)

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Open a topic in a group with topics or in a private chat; ``None`` if Telegram doesn't allow it."""
        try:
            topic = await self._client.ask(
                "createForumTopic", ForumTopic, chat_id=parent_chat_id, name=make_topic_name(name)
            )
        except Rejected as error:
            log.info("can't create a topic in chat %s: %s", parent_chat_id, error)
            return None
        return str(topic.message_thread_id)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def _log_in(self) -> BotIdentity:
        me = await self._client.ask("getMe", TelegramUser)
        if self._commands:
            commands = [{"command": one.name, "description": one.help} for one in self._commands]
            await self._attempt("setMyCommands", commands=commands)
        return BotIdentity(self.name, me.id, me.username, self._settings.group_mode, self._poster.posted)

    async def _receive_pushed(self, server: WebhookServer, identity: BotIdentity) -> AsyncGenerator[Incoming, None]:
        receiving = AlbumCollector(server, self._state_store, self._settings.album_pause)
        await receiving.start()
        try:
            while True:
                for parsed_update in read_updates(await receiving.next_item(), identity):
                    if parsed_update.incoming is not None and self._recent.is_unseen(parsed_update.incoming):
                        await self._answer_callback(parsed_update)
                        yield parsed_update.incoming
                        self._recent.add(parsed_update.incoming)
                    await receiving.confirm(parsed_update.last_update)
        finally:
            receiving.part()

    async def _answer_callback(self, parsed_update: ParsedUpdate) -> None:
        """Stop the button's progress indicator."""
        if parsed_update.callback:
            await self._attempt("answerCallbackQuery", callback_query_id=parsed_update.callback)

    async def _attempt(self, method: str, **parameters: object) -> None:
        """Make an optional call."""
        try:
            await self._client.ask(method, bool, _BEST_EFFORT, **parameters)
        except BadCredentials:
            raise
        except PlatformError as error:
            log.warning("%s: %s", self.name, error)


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the stored bot token; options may include those of a webhook."""
    options = {name: value for name, value in account.options.items() if not name.startswith(_WEBHOOK)}
    webhook = {
        name.removeprefix(_WEBHOOK): value for name, value in account.options.items() if name.startswith(_WEBHOOK)
    }
    token = account.secret("TELEGRAM_BOT_TOKEN")
    if not token:
        raise Refused("Telegram needs a bot token. Run `talaria setup chat` to enter it.")
    try:
        settings = msgspec.convert({**options, "token": token, "name": account.name}, TelegramSettings, strict=False)
        webhook_settings = msgspec.convert(webhook, Webhook, strict=False) if webhook else None
    except msgspec.ValidationError as error:
        raise Refused(f"Invalid option in platforms.{account.name}: {error}.") from error
    state_store = DurableAlbumStore(account.store, account.name)
    platform = Telegram(msgspec.structs.replace(settings, webhook=webhook_settings), account.commands, state_store)
    account.closing.push_async_callback(platform.close)
    return platform


class _Upload(Struct, frozen=True):
    """A file ready to send: its bytes under a name, or a URL that Telegram fetches itself."""

    kind: FileKind
    file: FormFile | str


class _Destination(Struct, frozen=True):
    """The chat of a message, and what it answers."""

    address: Address
    reply_to: str = ""

    @property
    def thread(self) -> int | None:
        """Return the topic."""
        return _parse_id(self.address.thread_id)

    @property
    def reply(self) -> dict[str, object] | None:
        """Return the message being answered; the answer is posted even if that is gone."""
        replied_id = _parse_id(self.reply_to)
        return None if replied_id is None else {"message_id": replied_id, "allow_sending_without_reply": True}

    def parameters(self, chat: str, keyboard: _Keyboard | None) -> dict[str, object]:
        """Return the parameters that all kinds of messages have."""
        return {
            "chat_id": chat,
            "message_thread_id": self.thread,
            "reply_parameters": self.reply,
            "reply_markup": keyboard,
        }


class MessagePoster:
    """The bot's messages; ``posted`` has the topics of its latest ones, by chat and id.

    An edit that changes nothing is not sent: Telegram refuses it, and counts it towards the flood limit.
    """

    def __init__(self, client: BotApi, settings: TelegramSettings) -> None:
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
        chat, message = ref.address.chat_id, _parse_id(ref.message_id)
        if message is None:
            raise Rejected(f"there is no message {ref.message_id!r} on Telegram")
        keyboard = _build_keyboard(content.buttons)
        formatted = format_text(content.text)
        if self._digests.pop((chat, ref.message_id), None) == _digest(formatted, content.buttons):
            self._remember_digest(ref, formatted, content.buttons)
            return

        known = {"chat_id": chat, "message_id": message, "reply_markup": keyboard}

        def text(shown: Formatted) -> Awaitable[object]:
            parameters = {**known, "text": shown.text, "entities": _to_telegram_entities(shown)}
            return self._client.ask_raw("editMessageText", Raw, parameters)

        def caption(shown: Formatted) -> Awaitable[object]:
            parameters = {**known, "caption": shown.text, "caption_entities": _to_telegram_entities(shown)}
            return self._client.ask_raw("editMessageCaption", Raw, parameters)

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
        *others, last = reaction_candidates(emoji) if emoji else [""]
        try:
            for candidate in others:
                try:
                    await self._set_reaction(chat, message, candidate)
                except Refusal as refusal:
                    if not refusal.is_invalid_reaction:
                        raise
                else:
                    return
            await self._set_reaction(chat, message, last)
        except Refusal as refusal:
            raise to_platform_error(refusal) from refusal

    async def _set_reaction(self, chat: str, message: int, emoji: str) -> None:
        reactions = [{"type": "emoji", "emoji": emoji}] if emoji else []
        parameters = {"chat_id": chat, "message_id": message, "reaction": reactions}
        await self._client.ask_raw("setMessageReaction", bool, parameters)

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
        self, destination: _Destination, formatted: Formatted, keyboard: _Keyboard | None
    ) -> TelegramMessage:
        def post(chat: str, shown: Formatted) -> Awaitable[TelegramMessage]:
            parameters = {
                **destination.parameters(chat, keyboard),
                "text": shown.text,
                "entities": _to_telegram_entities(shown),
            }
            return self._client.ask_raw("sendMessage", TelegramMessage, parameters)

        return await self._follow_migration(destination, formatted, post)

    async def _send_file(
        self, destination: _Destination, upload: _Upload, formatted: Formatted, keyboard: _Keyboard | None
    ) -> TelegramMessage:
        file = upload.file if isinstance(upload.file, FormFile) else None

        def post(chat: str, shown: Formatted) -> Awaitable[TelegramMessage]:
            parameters = {
                **destination.parameters(chat, keyboard),
                "caption": shown.text or None,
                "caption_entities": _to_telegram_entities(shown),
            }
            if file is None:
                parameters[upload.kind] = upload.file
            return self._client.ask_raw(
                f"send{upload.kind.capitalize()}", TelegramMessage, parameters, self._settings.file_patience, file
            )

        return await self._follow_migration(destination, formatted, post)

    async def _send_with_entities(self, formatted: Formatted, post: Callable[[Formatted], Awaitable[_T]]) -> _T:
        """Post with formatting; if Telegram rejects it, post the same text without."""
        try:
            return await post(formatted)
        except Refusal as refusal:
            if not (formatted.entities and refusal.is_about_entities):
                raise
        return await post(Formatted(formatted.text))

    async def _follow_migration(
        self,
        destination: _Destination,
        formatted: Formatted,
        post: Callable[[str, Formatted], Awaitable[TelegramMessage]],
    ) -> TelegramMessage:
        """Post in a chat, or in its successor: a group gets another id when it becomes a supergroup."""
        chat = destination.address.chat_id
        try:
            try:
                return await self._send_with_entities(formatted, lambda shown: post(chat, shown))
            except Refusal as refusal:
                if not refusal.moved_to:
                    raise
                successor = str(refusal.moved_to)
                return await self._send_with_entities(formatted, lambda shown: post(successor, shown))
        except Refusal as refusal:
            raise to_platform_error(refusal) from refusal


def _parse_id(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else None


def _to_telegram_entities(formatted: Formatted) -> list[TelegramEntity] | None:
    return [_to_telegram_entity(one) for one in formatted.entities] or None


def _to_telegram_entity(one: Entity) -> TelegramEntity:
    url = one.value if one.kind == "text_link" else ""
    language = one.value if one.kind == "pre" else ""
    return TelegramEntity(one.kind, one.offset, one.length, url=url, language=language)


def _digest(formatted: Formatted, buttons: tuple[Button, ...]) -> int:
    return hash((formatted.text, tuple(formatted.entities), buttons))


def _build_keyboard(buttons: tuple[Button, ...]) -> _Keyboard | None:
    if not buttons:
        return None
    rows = arrange_buttons(buttons)
    return {"inline_keyboard": [[{"text": one.label, "callback_data": one.value} for one in row] for row in rows]}


def _prepare_upload(file: File | Image) -> _Upload:
    """Read a file, or raise `Rejected` if Telegram wouldn't accept it."""
    if file.source.startswith(("http://", "https://")):
        return _Upload(file_kind(file, 0), file.source)
    data = _read_bytes(file.source)
    if not data:
        raise Rejected(f"{outgoing_file_name(file)} is empty, and Telegram doesn't accept empty files")
    kind, name = file_kind(file, len(data)), outgoing_file_name(file)
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return _Upload(kind, FormFile(kind, name, data, media_type))


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

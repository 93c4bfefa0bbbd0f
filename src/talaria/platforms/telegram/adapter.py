"""The Telegram adapter: a bot over the Bot API."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path

from telegram import BotCommand

from talaria.contracts.platform import Attachment, Content, Incoming, MessageRef, PlatformCapabilities, Rate, Rates
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, PlatformError, Rejected
from talaria.platforms.files import save_file
from talaria.platforms.telegram.albums import AlbumCollector, AlbumStore, MemoryAlbumStore
from talaria.platforms.telegram.client import ApiClient
from talaria.platforms.telegram.errors import Refusal, to_platform_error
from talaria.platforms.telegram.incoming import BotIdentity, ParsedUpdate, read_updates
from talaria.platforms.telegram.outgoing import FILE_LIMIT, TEXT_LIMIT, build_menu, make_topic_name
from talaria.platforms.telegram.receiving import PolledUpdates, RecentMessages, UpdatePoller
from talaria.platforms.telegram.sending import MessagePoster
from talaria.platforms.telegram.settings import TelegramSettings
from talaria.platforms.telegram.webhook import WebhookServer

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
        self._client = ApiClient(settings)
        self._poster = MessagePoster(self._client, settings)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Log in and yield updates; each is confirmed when the next one is requested."""
        identity = await self._log_in()
        if self._settings.webhook is None:
            await self._client.ask(self._client.bot.delete_webhook(drop_pending_updates=False))
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
        await self._client.ask(self._client.bot.send_chat_action(to.chat_id, "typing", message_thread_id=thread))

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Replace our mark on a message, with the nearest emoji that Telegram offers."""
        await self._poster.react(ref, emoji)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file into a folder under a safe name and return its path."""
        if attachment.size > DOWNLOAD_LIMIT:
            raise Rejected(f"Telegram lets bots download files of at most {DOWNLOAD_LIMIT // 1024**2} MB")
        file = await self._client.ask(self._client.bot.get_file(attachment.reference))
        try:
            data = await self._client.ask_raw(file.download_as_bytearray(), self._settings.file_patience)
        except Refusal as refusal:
            if refusal.code == 404:  # here the file is unknown, not the bot
                raise Rejected(f"{attachment.name} is no longer available on Telegram") from refusal
            raise to_platform_error(refusal) from refusal
        return await asyncio.to_thread(save_file, bytes(data), attachment.name, folder)

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Open a topic in a group with topics or in a private chat; ``None`` if Telegram doesn't allow it."""
        try:
            topic = await self._client.ask(self._client.bot.create_forum_topic(parent_chat_id, make_topic_name(name)))
        except Rejected as error:
            log.info("can't create a topic in chat %s: %s", parent_chat_id, error)
            return None
        return str(topic.message_thread_id)

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def _log_in(self) -> BotIdentity:
        me = await self._client.ask(self._client.bot.get_me())
        if self._commands:
            entries = [BotCommand(one.name, one.help) for one in self._commands]
            await self._attempt(self._client.bot.set_my_commands(entries))
        return BotIdentity(self.name, me.id, me.username or "", self._settings.group_mode, self._poster.posted)

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
            await self._attempt(self._client.bot.answer_callback_query(parsed_update.callback))

    async def _attempt(self, call: Awaitable[object]) -> None:
        """Make an optional call."""
        try:
            await self._client.ask(call, _BEST_EFFORT)
        except BadCredentials:
            raise
        except PlatformError as error:
            log.warning("%s: %s", self.name, error)

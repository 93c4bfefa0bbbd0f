"""A bot on Telegram: an implementation of `Platform` over the Bot API."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from pathlib import Path

from telegram import BotCommand

from talaria.contracts.platform import Abilities, Attachment, Content, Incoming, MessageRef, Rate, Rates
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, PlatformError, Rejected
from talaria.platforms.files import save
from talaria.platforms.telegram.albums import MemoryShelf, Receiving, Shelf
from talaria.platforms.telegram.calls import Calls
from talaria.platforms.telegram.incoming import Account, Arrival, read_updates
from talaria.platforms.telegram.outgoing import FILE_LIMIT, TEXT_LIMIT, menu, topic_name
from talaria.platforms.telegram.polled import Polled
from talaria.platforms.telegram.polling import Polling
from talaria.platforms.telegram.posting import Posting
from talaria.platforms.telegram.recalling import Recent
from talaria.platforms.telegram.refusals import Refusal, our_error
from talaria.platforms.telegram.settings import TelegramSettings
from talaria.platforms.telegram.webhook import Hook

ABILITIES = Abilities(
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
    """One bot; ``commands`` are the names and help of what its menu offers, ``shelf`` keeps what came of an album.

    Messages can be sent whether it is connected or not. Whoever made it closes it.
    """

    def __init__(
        self, settings: TelegramSettings, commands: Sequence[tuple[str, str]] = (), shelf: Shelf | None = None
    ) -> None:
        self.name = settings.name
        self.abilities = ABILITIES
        self._settings = settings
        self._commands = menu(commands)
        self._shelf = shelf or MemoryShelf()
        self._recent = Recent()
        self._calls = Calls(settings)
        self._posting = Posting(self._calls, settings)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Log in and yield what people do; an update is confirmed when the next one is asked for."""
        account = await self._log_in()
        if self._settings.webhook is None:
            await self._calls.ask(self._calls.bot.delete_webhook(drop_pending_updates=False))
            polling = Polling(self._calls, self._settings)
            await polling.begin()
            try:
                yield Polled(polling, account, self._recent, self._answer_callback)
            finally:
                await polling.part()
        else:
            hook = Hook(self._calls, self._settings.webhook, self._settings)
            async with hook.serve(), aclosing(self._handed(hook, account)) as arrivals:
                yield arrivals

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Post one message, further files behind it; Telegram has no use for a key."""
        return await self._posting.send(to, content)

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Replace the text and the buttons of a posted message."""
        await self._posting.edit(ref, content)

    async def show_typing(self, to: Address) -> None:
        """Show for five seconds that an answer is being written."""
        thread = int(to.thread_id) if to.thread_id else None
        await self._calls.ask(self._calls.bot.send_chat_action(to.chat_id, "typing", message_thread_id=thread))

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Mark a message in place of our mark before, with what comes nearest among the marks that Telegram offers."""
        await self._posting.react(ref, emoji)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file into a folder under a safe name and return where it is."""
        if attachment.size > DOWNLOAD_LIMIT:
            raise Rejected(f"Telegram gives bots files of at most {DOWNLOAD_LIMIT // 1024**2} MB")
        file = await self._calls.ask(self._calls.bot.get_file(attachment.reference))
        try:
            data = await self._calls.ask_openly(file.download_as_bytearray(), self._settings.file_patience)
        except Refusal as refusal:
            if refusal.code == 404:  # here it is the file that is not known
                raise Rejected(f"{attachment.name} is not at Telegram any more") from refusal
            raise our_error(refusal) from refusal
        return await asyncio.to_thread(save, bytes(data), attachment.name, folder)

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Open a topic in a group with topics or in a private chat; ``None`` where Telegram does not allow it."""
        try:
            topic = await self._calls.ask(self._calls.bot.create_forum_topic(parent_chat_id, topic_name(name)))
        except Rejected as error:
            log.info("no topic in chat %s: %s", parent_chat_id, error)
            return None
        return str(topic.message_thread_id)

    async def close(self) -> None:
        """Let go of all connections."""
        await self._calls.close()

    async def _log_in(self) -> Account:
        me = await self._calls.ask(self._calls.bot.get_me())
        if self._commands:
            entries = [BotCommand(one.name, one.help) for one in self._commands]
            await self._try(self._calls.bot.set_my_commands(entries))
        return Account(self.name, me.id, me.username or "", self._settings.group_mode, self._posting.posted)

    async def _handed(self, hook: Hook, account: Account) -> AsyncGenerator[Incoming, None]:
        receiving = Receiving(hook, self._shelf, self._settings.album_pause)
        await receiving.begin()
        try:
            while True:
                for arrival in read_updates(await receiving.following(), account):
                    if arrival.incoming is not None and self._recent.is_news(arrival.incoming):
                        await self._answer_callback(arrival)
                        yield arrival.incoming
                        self._recent.add(arrival.incoming)
                    await receiving.confirm(arrival.last_update)
        finally:
            receiving.part()

    async def _answer_callback(self, arrival: Arrival) -> None:
        """Let the button stop turning."""
        if arrival.callback:
            await self._try(self._calls.bot.answer_callback_query(arrival.callback))

    async def _try(self, call: Awaitable[object]) -> None:
        """Ask for something that a conversation can do without."""
        try:
            await self._calls.ask(call, _BEST_EFFORT)
        except BadCredentials:
            raise
        except PlatformError as error:
            log.warning("%s: %s", self.name, error)

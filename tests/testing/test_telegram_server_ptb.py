"""The loopback Telegram server with python-telegram-bot."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import telegram
from aiohttp import web
from telegram.error import BadRequest, ChatMigrated, Conflict, InvalidToken, RetryAfter
from telegram.ext import Application, TypeHandler
from tests.testing import telegram_scenarios
from tests.testing.telegram_scenarios import Library, ReceivedUpdate, Scenarios

from talaria.testing.telegram_server import TelegramServer

server = telegram_scenarios.server
# It warns that the type of its delays will change; both types are read here.
pytestmark = pytest.mark.filterwarnings("ignore::telegram.warnings.PTBDeprecationWarning")


class PythonTelegramBot:
    rejected: type[Exception] = BadRequest
    slow_down: type[Exception] = RetryAfter
    unauthorized: type[Exception] = InvalidToken
    conflict: type[Exception] = Conflict
    moved: type[Exception] = ChatMigrated

    def __init__(self, server: TelegramServer) -> None:
        self._server = server
        self._bot = self._bot_with(server.token)

    def _bot_with(self, token: str) -> telegram.Bot:
        return telegram.Bot(token, base_url=self._server.base_url, base_file_url=self._server.base_file_url)

    async def open(self) -> None:
        await self._bot.initialize()

    async def close(self) -> None:
        await self._bot.shutdown()

    @asynccontextmanager
    async def polling(self) -> AsyncIterator[asyncio.Queue[ReceivedUpdate]]:
        updates: asyncio.Queue[ReceivedUpdate] = asyncio.Queue()
        application = Application.builder().bot(self._bot_with(self._server.token)).build()

        async def listen(update: telegram.Update, _: object) -> None:
            updates.put_nowait(describe_update(update))

        application.add_handler(TypeHandler(telegram.Update, listen))
        async with application:
            await application.start()
            assert application.updater is not None
            await application.updater.start_polling(allowed_updates=telegram.Update.ALL_TYPES)
            yield updates
            await application.updater.stop()
            await application.stop()

    @asynccontextmanager
    async def webhook(self, secret: str) -> AsyncIterator[asyncio.Queue[ReceivedUpdate]]:
        updates: asyncio.Queue[ReceivedUpdate] = asyncio.Queue()

        async def accept(request: web.Request) -> web.Response:
            if request.headers.get("X-Telegram-Bot-Api-Secret-Token") != secret:
                return web.Response(status=403)
            update = telegram.Update.de_json(await request.json(), self._bot)
            updates.put_nowait(describe_update(update))
            return web.Response()

        application = web.Application()
        application.router.add_post("/hook", accept)
        runner = web.AppRunner(application)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        await self._bot.set_webhook(f"http://127.0.0.1:{runner.addresses[0][1]}/hook", secret_token=secret)
        assert (await self._bot.get_webhook_info()).url.endswith("/hook")
        yield updates
        await self._bot.delete_webhook()
        await runner.cleanup()

    async def bot_username(self, token: str) -> str:
        async with self._bot_with(token) as bot:
            return str(bot.username)

    async def poll_once(self) -> None:
        await self._bot.get_updates(timeout=0)

    def new_chat_id(self, error: Any) -> int:
        return int(error.new_chat_id)

    def retry_seconds(self, error: Any) -> float:
        wait = error.retry_after
        return float(wait if isinstance(wait, int) else wait.total_seconds())

    async def send(
        self,
        chat_id: int,
        text: str,
        *,
        reply_to: int | None = None,
        thread: int | None = None,
        buttons: Sequence[tuple[str, str]] = (),
        markup: str | None = None,
    ) -> int:
        row = [telegram.InlineKeyboardButton(label, callback_data=value) for label, value in buttons]
        sent = await self._bot.send_message(
            chat_id,
            text,
            parse_mode=markup,
            message_thread_id=thread,
            reply_parameters=telegram.ReplyParameters(reply_to) if reply_to else None,
            reply_markup=telegram.InlineKeyboardMarkup([row]) if row else None,
            link_preview_options=telegram.LinkPreviewOptions(is_disabled=True),
        )
        return sent.message_id

    async def edit(self, chat_id: int, message_id: int, text: str) -> None:
        await self._bot.edit_message_text(text, chat_id, message_id)

    async def delete(self, chat_id: int, message_id: int) -> None:
        await self._bot.delete_message(chat_id, message_id)

    async def answer(self, query: str, text: str) -> None:
        await self._bot.answer_callback_query(query, text)

    async def react(self, chat_id: int, message_id: int, emoji: str) -> None:
        await self._bot.set_message_reaction(chat_id, message_id, telegram.ReactionTypeEmoji(emoji))

    async def send_file(self, kind: str, chat_id: int, file: bytes | str, name: str, caption: str) -> str:
        upload = telegram.InputFile(file, name) if isinstance(file, bytes) else file
        match kind:
            case "photo":
                return (await self._bot.send_photo(chat_id, upload, caption)).photo[-1].file_id
            case "document":
                sent = await self._bot.send_document(chat_id, upload, caption)
                assert sent.document
                return sent.document.file_id
            case "voice":
                sent = await self._bot.send_voice(chat_id, upload, caption=caption)
                assert sent.voice
                return sent.voice.file_id
            case _:
                sent = await self._bot.send_sticker(chat_id, upload)
                assert sent.sticker
                return sent.sticker.file_id

    async def send_album(self, chat_id: int, pictures: Sequence[bytes]) -> list[int]:
        sent = await self._bot.send_media_group(chat_id, [telegram.InputMediaPhoto(one) for one in pictures])
        return [one.message_id for one in sent]

    async def fetch(self, file: str) -> bytes:
        return bytes(await (await self._bot.get_file(file)).download_as_bytearray())

    async def show_typing(self, chat_id: int, thread: int | None) -> None:
        await self._bot.send_chat_action(chat_id, "typing", message_thread_id=thread)

    async def open_topic(self, chat_id: int, name: str) -> int:
        return (await self._bot.create_forum_topic(chat_id, name)).message_thread_id

    async def rename_topic(self, chat_id: int, thread: int, name: str) -> None:
        await self._bot.edit_forum_topic(chat_id, thread, name)

    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        await self._bot.set_my_commands(list(commands))
        return [(one.command, one.description) for one in await self._bot.get_my_commands()]

    async def chat_title(self, chat_id: int) -> str:
        return str((await self._bot.get_chat(chat_id)).title)

    async def status_of(self, chat_id: int, user_id: int) -> str:
        return str((await self._bot.get_chat_member(chat_id, user_id)).status)


def describe_update(update: telegram.Update) -> ReceivedUpdate:
    """Return an update as the scenarios describe it."""
    if update.callback_query:
        query = update.callback_query
        assert query.message
        return ReceivedUpdate(kind="button", text=query.data or "", query=query.id, message_id=query.message.message_id)
    if update.message_reaction:
        (reaction,) = update.message_reaction.new_reaction
        assert isinstance(reaction, telegram.ReactionTypeEmoji)
        return ReceivedUpdate(kind="reaction", text=reaction.emoji, message_id=update.message_reaction.message_id)
    message = update.effective_message
    if message is None or message.forum_topic_created:
        return ReceivedUpdate(kind="other")
    if message.migrate_to_chat_id or message.migrate_from_chat_id:
        to, before = message.migrate_to_chat_id, message.migrate_from_chat_id
        return ReceivedUpdate(kind="move", text=f"to {to}" if to else f"from {before}")
    file = message.effective_attachment
    if isinstance(file, tuple):
        file = file[-1]
    return ReceivedUpdate(
        kind="edit" if update.edited_message else "file" if file else "text",
        text=message.text or message.caption or "",
        chat_id=message.chat_id,
        message_id=message.message_id,
        thread=message.message_thread_id,
        file=getattr(file, "file_id", ""),
    )


class TestPythonTelegramBot(Scenarios):
    @pytest.fixture
    async def library(self, server: TelegramServer) -> AsyncIterator[Library]:
        library = PythonTelegramBot(server)
        await library.open()
        yield library
        await library.close()

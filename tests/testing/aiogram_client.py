"""Aiogram as a client of the loopback Telegram server."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiogram import Bot, Dispatcher
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.enums import ChatMemberStatus
from aiogram.exceptions import (
    TelegramBadRequest,
    TelegramConflictError,
    TelegramMigrateToChat,
    TelegramRetryAfter,
    TelegramUnauthorizedError,
)
from aiogram.types import (
    BotCommand,
    BufferedInputFile,
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    InputMediaPhoto,
    LinkPreviewOptions,
    Message,
    ReactionTypeEmoji,
    ReplyParameters,
    TelegramObject,
    Update,
)
from aiogram.webhook.aiohttp_server import SimpleRequestHandler
from aiohttp import web
from tests.testing.telegram_scenarios import ReceivedUpdate

from talaria.testing.telegram_server import TelegramServer

KINDS = ["message", "edited_message", "callback_query", "message_reaction"]


class Aiogram:
    rejected: type[Exception] = TelegramBadRequest
    slow_down: type[Exception] = TelegramRetryAfter
    unauthorized: type[Exception] = TelegramUnauthorizedError
    conflict: type[Exception] = TelegramConflictError
    moved: type[Exception] = TelegramMigrateToChat

    def __init__(self, server: TelegramServer) -> None:
        self._server = server
        self._bot = self._bot_with(server.token)

    def _bot_with(self, token: str) -> Bot:
        return Bot(token, session=AiohttpSession(api=TelegramAPIServer.from_base(self._server.url)))

    async def close(self) -> None:
        await self._bot.session.close()

    @asynccontextmanager
    async def polling(self) -> AsyncIterator[asyncio.Queue[ReceivedUpdate]]:
        dispatcher, updates = make_dispatcher()
        async with asyncio.TaskGroup() as group:
            group.create_task(
                dispatcher.start_polling(
                    self._bot, handle_signals=False, close_bot_session=False, allowed_updates=KINDS, polling_timeout=10
                )
            )
            await self._server.called("getUpdates")
            yield updates
            await dispatcher.stop_polling()

    @asynccontextmanager
    async def webhook(self, secret: str) -> AsyncIterator[asyncio.Queue[ReceivedUpdate]]:
        dispatcher, updates = make_dispatcher()
        application = web.Application()
        handler = SimpleRequestHandler(dispatcher, self._bot, handle_in_background=False, secret_token=secret)
        application.router.add_post("/hook", handler.handle)
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
            return str((await bot.get_me()).username)

    async def poll_once(self) -> None:
        await self._bot.get_updates(timeout=0)

    def new_chat_id(self, error: Any) -> int:
        return int(error.migrate_to_chat_id)

    def retry_seconds(self, error: Any) -> float:
        return float(error.retry_after)

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
        row = [InlineKeyboardButton(text=label, callback_data=value) for label, value in buttons]
        sent = await self._bot.send_message(
            chat_id,
            text,
            parse_mode=markup,
            message_thread_id=thread,
            reply_parameters=ReplyParameters(message_id=reply_to) if reply_to else None,
            reply_markup=InlineKeyboardMarkup(inline_keyboard=[row]) if row else None,
            link_preview_options=LinkPreviewOptions(is_disabled=True),
        )
        return sent.message_id

    async def edit(self, chat_id: int, message_id: int, text: str) -> None:
        await self._bot.edit_message_text(text=text, chat_id=chat_id, message_id=message_id)

    async def delete(self, chat_id: int, message_id: int) -> None:
        await self._bot.delete_message(chat_id, message_id)

    async def answer(self, query: str, text: str) -> None:
        await self._bot.answer_callback_query(query, text)

    async def react(self, chat_id: int, message_id: int, emoji: str) -> None:
        await self._bot.set_message_reaction(chat_id, message_id, [ReactionTypeEmoji(emoji=emoji)])

    async def send_file(self, kind: str, chat_id: int, file: bytes | str, name: str, caption: str) -> str:
        upload = BufferedInputFile(file, name) if isinstance(file, bytes) else file
        match kind:
            case "photo":
                sent = await self._bot.send_photo(chat_id, upload, caption=caption)
            case "document":
                sent = await self._bot.send_document(chat_id, upload, caption=caption)
            case "voice":
                sent = await self._bot.send_voice(chat_id, upload, caption=caption)
            case _:
                sent = await self._bot.send_sticker(chat_id, upload)
        return file_of(sent)

    async def send_album(self, chat_id: int, pictures: Sequence[bytes]) -> list[int]:
        media: list[Any] = [InputMediaPhoto(media=BufferedInputFile(one, "a.png")) for one in pictures]
        return [one.message_id for one in await self._bot.send_media_group(chat_id, media)]

    async def fetch(self, file: str) -> bytes:
        found = await self._bot.download(file)
        assert found is not None
        return found.read()

    async def show_typing(self, chat_id: int, thread: int | None) -> None:
        await self._bot.send_chat_action(chat_id, "typing", message_thread_id=thread)

    async def open_topic(self, chat_id: int, name: str) -> int:
        return (await self._bot.create_forum_topic(chat_id, name)).message_thread_id

    async def rename_topic(self, chat_id: int, thread: int, name: str) -> None:
        await self._bot.edit_forum_topic(chat_id, thread, name)

    async def set_commands(self, commands: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        await self._bot.set_my_commands(
            [BotCommand(command=name, description=description) for name, description in commands]
        )
        return [(one.command, one.description) for one in await self._bot.get_my_commands()]

    async def chat_title(self, chat_id: int) -> str:
        return str((await self._bot.get_chat(chat_id)).title)

    async def status_of(self, chat_id: int, user_id: int) -> str:
        return ChatMemberStatus((await self._bot.get_chat_member(chat_id, user_id)).status).value


def make_dispatcher() -> tuple[Dispatcher, asyncio.Queue[ReceivedUpdate]]:
    """Return a dispatcher, and the queue into which it puts received updates."""
    dispatcher = Dispatcher()
    updates: asyncio.Queue[ReceivedUpdate] = asyncio.Queue()

    async def listen(
        handler: Callable[[TelegramObject, dict[str, Any]], Awaitable[Any]], event: TelegramObject, data: dict[str, Any]
    ) -> None:
        assert isinstance(event, Update)
        updates.put_nowait(describe_update(event))

    dispatcher.update.outer_middleware(listen)
    return dispatcher, updates


def file_of(message: Message) -> str:
    file = message.photo[-1] if message.photo else message.document or message.voice or message.sticker
    return file.file_id if file else ""


def describe_update(update: Update) -> ReceivedUpdate:
    """Return an update as the scenarios describe it."""
    if update.callback_query:
        query = update.callback_query
        assert query.message
        return ReceivedUpdate(kind="button", text=query.data or "", query=query.id, message_id=query.message.message_id)
    if update.message_reaction:
        (reaction,) = update.message_reaction.new_reaction
        assert isinstance(reaction, ReactionTypeEmoji)
        return ReceivedUpdate(kind="reaction", text=reaction.emoji, message_id=update.message_reaction.message_id)
    message = update.message or update.edited_message
    if message is None or message.forum_topic_created:
        return ReceivedUpdate(kind="other")
    if message.migrate_to_chat_id or message.migrate_from_chat_id:
        to, before = message.migrate_to_chat_id, message.migrate_from_chat_id
        return ReceivedUpdate(kind="move", text=f"to {to}" if to else f"from {before}")
    file = file_of(message)
    return ReceivedUpdate(
        kind="edit" if update.edited_message else "file" if file else "text",
        text=message.text or message.caption or "",
        chat_id=message.chat.id,
        message_id=message.message_id,
        thread=message.message_thread_id,
        file=file,
    )

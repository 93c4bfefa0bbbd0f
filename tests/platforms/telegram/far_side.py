"""The far side of Telegram for the contract suite: a loopback Bot API server with a person in three chats."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec

from talaria.core.addresses import Address
from talaria.platforms.telegram.adapter import Telegram
from talaria.platforms.telegram.settings import TelegramSettings, Webhook
from talaria.testing.platform_suite import FailureKind, VisibleMessage
from talaria.testing.system_servers import free_port
from talaria.testing.telegram_server import Chat, Document, Message, TelegramServer, Topic
from talaria.testing.telegram_server.files import Media

QUICK = timedelta(seconds=3)


def settings_for(server: TelegramServer, **others: object) -> TelegramSettings:
    """Return the settings of the server's bot, with little patience."""
    return TelegramSettings(
        token=server.token,
        base_url=server.base_url,
        base_file_url=server.base_file_url,
        poll=timedelta(seconds=1),
        patience=QUICK,
        file_patience=QUICK,
        album_pause=timedelta(milliseconds=50),
        **others,  # type: ignore[arg-type]
    )


def free_webhook() -> Webhook:
    """Return a webhook at a free loopback port."""
    port = free_port()
    return Webhook(public_url=f"http://127.0.0.1:{port}/telegram", port=port)


class TelegramFarSide:
    """Ann, her chat with the bot, her group and her forum."""

    def __init__(self, server: TelegramServer, platform: Telegram, topic: Topic, chats: tuple[Chat, Chat]) -> None:
        self.platform = platform
        self.secret = server.token
        self._server = server
        self._ann = server.user("Ann")
        group, forum = chats
        chat = server.private(self._ann)
        self._chats = {str(one.id): one for one in (chat, group, forum)}
        self._last: Message | None = None
        self.private = Address("telegram", str(chat.id))
        self.group: Address | None = Address("telegram", str(group.id), "group")
        self.thread: Address | None = Address("telegram", str(forum.id), "thread", str(topic.id))
        self.nowhere = Address("telegram", "4242424242")

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        mention = addressed and at.chat_type != "private"
        self._last = await self._chat(at).says(self._ann, text, thread=_thread(at), mention=mention)

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        await self._chat(at).sends(self._ann, Document(data, name), thread=_thread(at))

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        chat = self._chat(at)
        message = next(one for one in chat.answers if str(one.id) == message_id)
        await chat.presses(self._ann, message, label)

    async def reacts(self, at: Address, message_id: str, emoji: str) -> None:
        chat = self._chat(at)
        await chat.reacts(self._ann, next(one for one in chat.answers if str(one.id) == message_id), emoji)

    async def own_reactions(self, at: Address, message_id: str) -> list[str]:
        found = next(one for one in self._chat(at).messages if str(one.id) == message_id)
        return list(found.reactions.get(self._server.bot.id, ()))

    async def redelivers(self) -> bool:
        assert self._last is not None
        self._server.redeliver(self._last)
        return True

    async def seen(self, at: Address) -> list[VisibleMessage]:
        return [
            VisibleMessage(
                message_id=str(one.id),
                text=one.text,
                reply_to=str(one.reply_to.id) if one.reply_to and not one.reply_to.service else "",
                buttons=tuple(button.text for button in one.buttons),
                files=(_file_name(one.media),) if one.media else (),
            )
            for one in self._chat(at).answers
            if (one.thread if one.in_topic else None) == _thread(at)
        ]

    async def disrupt(self, failure: FailureKind) -> bool:
        match failure:
            case "slow_down":
                self._server.flood(after=0, retry_after=7)
            case "failing":
                self._server.fail("sendMessage", 502)
            case "silent":
                self._server.hang("sendMessage")
            case "deaf":
                self._server.hang("getUpdates")
            case "cut":
                self._server.drop_connections()
            case "revoked":
                self._server.fail("*", 401, 100)
        return True

    async def calm(self) -> None:
        self._server.recover()

    def _chat(self, at: Address) -> Chat:
        return self._chats[at.chat_id]


class WebhookFarSide(TelegramFarSide):
    """The same with a webhook: there is no connection that could go deaf."""

    async def disrupt(self, failure: FailureKind) -> bool:
        return failure != "deaf" and await super().disrupt(failure)


@asynccontextmanager
async def telegram_far_side(*, webhook: bool = False) -> AsyncIterator[TelegramFarSide]:
    """Open a server with its chats, and the adapter."""
    async with TelegramServer() as server:
        ann = server.user("Ann")
        group, forum = server.group("Family", ann), server.forum("Project", ann)
        topic = await forum.opens_topic(ann, "Plans")
        platform = Telegram(settings_for(server, webhook=free_webhook() if webhook else None))
        try:
            yield (WebhookFarSide if webhook else TelegramFarSide)(server, platform, topic, (group, forum))
        finally:
            await platform.close()


def _file_name(media: Media) -> str:
    return str(msgspec.convert(media.field, dict[str, object])["file_name"])


def _thread(at: Address) -> int | None:
    return int(at.thread_id) if at.thread_id else None

"""The far side of Slack for the contract suite: a workspace on loopback with a person in three chats."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from html import unescape

from talaria.core.addresses import Address
from talaria.platforms.slack.adapter import Slack
from talaria.platforms.slack.incoming import emoji_for, names_for
from talaria.platforms.slack.settings import SlackSettings
from talaria.testing.platform_suite import FailureKind, VisibleMessage
from talaria.testing.slack_server import APP_TOKEN, TOKEN, Channel, Message, SlackServer
from talaria.testing.slack_server.methods import choices_of

QUICK = timedelta(seconds=3)


def settings_for(server: SlackServer, **others: object) -> SlackSettings:
    """Return the settings of the workspace's app, with little patience."""
    credentials = {"token": TOKEN, "app_token": APP_TOKEN, "base_url": server.base_url}
    quick = {"ping": timedelta(seconds=0.5), "patience": QUICK, "file_patience": QUICK, "file_limit": 1_000_000}
    return SlackSettings(**{**credentials, **quick, **others})  # type: ignore[arg-type]


class SlackFarSide:
    """Ann, her chat with the app, her channel and a thread in it."""

    def __init__(self, server: SlackServer, platform: Slack, channel: Channel, root: Message) -> None:
        self.platform = platform
        self.secret = TOKEN
        self._server = server
        self._ann = server.user("Ann")
        chat = server.direct(self._ann)
        self._channels = {one.id: one for one in (chat, channel)}
        self.private = Address("slack", chat.id)
        self.group: Address | None = Address("slack", channel.id, "group")
        self.thread: Address | None = Address("slack", channel.id, "thread", root.ts)
        self.nowhere = Address("slack", "C0NOWHERE", "group")

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        mention = addressed and at.chat_type != "private"
        await self._channels[at.chat_id].says(self._ann, text, thread=at.thread_id, mention=mention)

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        await self._channels[at.chat_id].shares(self._ann, self._server.file(name, data))

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        await self._channels[at.chat_id].chooses(self._ann, self._message(at, message_id), label)

    async def reacts(self, at: Address, message_id: str, emoji: str) -> None:
        await self._channels[at.chat_id].reacts(self._ann, self._message(at, message_id), names_for(emoji)[0])

    async def own_reactions(self, at: Address, message_id: str) -> list[str]:
        reactions = self._message(at, message_id).reactions
        return [emoji_for(name) for name, users in reactions.items() if self._server.world.bot.id in users]

    async def redelivers(self) -> bool:
        await self._server.hub.repeat(self._server.hub.handed[-1])
        return True

    async def seen(self, at: Address) -> list[VisibleMessage]:
        answers = self._channels[at.chat_id].answers
        return [_seen(one) for one in answers if one.thread_ts == at.thread_id]

    async def disrupt(self, failure: FailureKind) -> bool:
        server = self._server
        match failure:
            case "slow_down":
                server.fail("chat.postMessage", "ratelimited", status=429, retry_after=7)
            case "failing":
                server.fail("chat.postMessage", status=502)
            case "silent":
                server.hang("chat.postMessage")
            case "deaf":
                server.hub.leave()
            case "cut":
                server.hub.cut()
            case "revoked":
                server.revoked = True
        return True

    async def calm(self) -> None:
        self._server.recover()

    def _message(self, at: Address, message_id: str) -> Message:
        return next(one for one in self._channels[at.chat_id].messages if one.ts == message_id)


def _seen(message: Message) -> VisibleMessage:
    """Return a message as a person sees it; outside of threads, only its metadata names the answered message."""
    return VisibleMessage(
        message_id=message.ts,
        text=unescape(message.text),
        reply_to=message.metadata.get("event_payload", {}).get("reply_to", ""),
        buttons=tuple(label for label, _ in choices_of(message.blocks)),
        files=tuple(one.name for one in message.files),
    )


@asynccontextmanager
async def slack_far_side() -> AsyncIterator[SlackFarSide]:
    """Open a workspace with its chats, and the adapter; it answers in the channel, which has its own address."""
    async with SlackServer() as server:
        channel = server.channel("family", ann := server.user("Ann"))
        server.direct(ann)
        root = Message(server.world.stamp(), ann.id, "Plans")
        channel.messages.append(root)
        platform = Slack(settings_for(server, channel_replies="channel"))
        try:
            yield SlackFarSide(server, platform, channel, root)
        finally:
            await platform.close()
        assert server.hub.complaints == []

"""The far side of Discord for the contract suite: a server on loopback with a person in three chats."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from talaria.core.addresses import Address
from talaria.platforms.discord.adapter import Discord
from talaria.platforms.discord.settings import DiscordSettings
from talaria.testing.discord_server import DiscordServer, Post, Room
from talaria.testing.discord_server.methods import create_message
from talaria.testing.platform_suite import FailureKind, VisibleMessage

QUICK = timedelta(seconds=3)


def settings_for(server: DiscordServer, **others: object) -> DiscordSettings:
    """Return the settings of the server's bot, with little patience."""
    fields: dict[str, object] = {
        "token": server.token,
        "api_url": server.api_url,
        "cdn_url": f"{server.url}/cdn",
        "patience": QUICK,
        "file_patience": QUICK,
        "silence": QUICK,
        **others,
    }
    return DiscordSettings(**fields)  # type: ignore[arg-type]


class DiscordFarSide:
    """Ann, her chat with the bot, a channel and a thread."""

    def __init__(self, server: DiscordServer, platform: Discord, thread: Room) -> None:
        self.platform = platform
        self.secret = server.token
        self._server = server
        self._ann = server.user("Ann")
        self._last: Post | None = None
        assert thread.channel.parent is not None
        channel = thread.channel.parent.id
        self.private = Address("discord", server.private(self._ann).id)
        self.group: Address | None = Address("discord", channel, "group")
        self.thread: Address | None = Address("discord", channel, "thread", thread.id)
        self.nowhere = Address("discord", "4242424242")

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        mention = addressed and at.chat_type != "private"
        self._last = await self._room(at).says(self._ann, text, mention=mention)

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        await self._room(at).sends(self._ann, name, data)

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        await self._room(at).presses(self._ann, self._post(at, message_id), label)

    async def reacts(self, at: Address, message_id: str, emoji: str) -> None:
        await self._room(at).reacts(self._ann, self._post(at, message_id), emoji)

    async def own_reactions(self, at: Address, message_id: str) -> list[str]:
        own_reactions = self._post(at, message_id).reactions
        return [emoji for emoji, people in own_reactions.items() if self._server.bot.id in people]

    async def redelivers(self) -> bool:
        assert self._last is not None
        await Room(self._server.world, self._last.channel).redelivers(self._last)
        return True

    async def seen(self, at: Address) -> list[VisibleMessage]:
        return [
            VisibleMessage(
                message_id=one.id,
                text=one.text,
                reply_to=one.reply_to.id if one.reply_to else "",
                buttons=one.labels,
                files=tuple(file.name for file in one.files),
            )
            for one in self._room(at).answers
        ]

    async def disrupt(self, failure: FailureKind) -> bool:
        match failure:
            case "slow_down":
                self._server.fail(create_message, 429, retry_after=7)
            case "failing":
                self._server.fail(create_message, 502, 100)
            case "silent":
                self._server.fail(create_message, 0)
            case "deaf":
                self._server.gateway.deaf = True
            case "cut":
                self._server.drop_connections()
            case "revoked":
                self._server.revoke()
        return True

    async def calm(self) -> None:
        self._server.recover()

    def _room(self, at: Address) -> Room:
        return self._server.room(at.thread_id or at.chat_id)

    def _post(self, at: Address, message_id: str) -> Post:
        return next(one for one in self._room(at).posts if one.id == message_id)


@asynccontextmanager
async def discord_far_side() -> AsyncIterator[DiscordFarSide]:
    """Open a server with its chats, and the adapter."""
    async with DiscordServer(heartbeat=0.5) as server:
        thread = await server.channel("general").opens_thread(server.user("Ann"), "Plans")
        platform = Discord(settings_for(server))
        try:
            yield DiscordFarSide(server, platform, thread)
        finally:
            await platform.close()

"""A connection to Discord's gateway: the library's socket, whose events are ours to read."""

import asyncio
import sys
from collections import deque
from contextlib import suppress
from typing import Any, Self

import aiohttp
import msgspec
import yarl
from discord import ConnectionClosed
from discord.gateway import DiscordWebSocket, ReconnectWebSocket

from talaria.core.errors import Unreachable
from talaria.platforms.discord.calls import Calls
from talaria.platforms.discord.failures import closed
from talaria.platforms.discord.keeping import Login
from talaria.platforms.discord.settings import DiscordSettings
from talaria.platforms.discord.wire import Frame

GUILDS, GUILD_MESSAGES, GUILD_MARKS = 1 << 0, 1 << 9, 1 << 10
MESSAGES, MARKS, CONTENT = 1 << 12, 1 << 13, 1 << 15
_INTENTS = GUILDS | GUILD_MESSAGES | GUILD_MARKS | MESSAGES | MARKS
_DISPATCH = 0
_PARTING = 2.0

_frames = msgspec.json.Decoder(Frame)


class Lost(Exception):
    """The connection is gone; whether the session can be gone on with over another one is ``resume``."""

    def __init__(self, why: str, *, resume: bool = True) -> None:
        super().__init__(why)
        self.resume = resume


class Line(DiscordWebSocket):
    """One connection. ``arrived`` has the events that came and were not taken yet.

    The library beats its heart and notices what the gateway wants; what is said passes by its own caches.
    """

    _discord_parsers: dict[str, Any] = {}  # noqa: RUF012 - as the library declares it
    shard_id = None
    shard_count = None

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(socket, loop=loop)
        self.arrived: deque[Frame] = deque()
        self._intents = _INTENTS
        self._silence = 0.0

    @classmethod
    async def dial(cls, calls: Calls, settings: DiscordSettings, login: Login) -> Self:
        """Connect and log in, going on with a session where there is one. Raises `PlatformError` or `Lost`."""
        gateway = yarl.URL(login.url)
        address = str(gateway.with_query(v=10, encoding="json"))
        line = cls(await calls.ask(lambda api: api.ws_connect(address)), loop=asyncio.get_running_loop())
        try:
            await line.enter(gateway, settings, login)
        except BaseException:
            await line.part()
            raise
        return line

    async def enter(self, gateway: yarl.URL, settings: DiscordSettings, login: Login) -> None:
        """Wait for the greeting, and say who we are."""
        self.gateway, self.token = gateway, settings.token
        self.session_id, self.sequence = login.session or None, login.sequence or None
        self._silence = settings.silence.total_seconds()
        self._max_heartbeat_timeout = self._silence * 2  # ours comes first, and waits for no farewell
        if settings.message_content:
            self._intents |= CONTENT
        await self.follow(settings.patience.total_seconds())
        await (self.resume() if login.session else self.identify())

    async def identify(self) -> None:
        """Ask for a session."""
        properties = {"os": sys.platform, "browser": "talaria", "device": "talaria"}
        wanted = {"token": self.token, "properties": properties, "compress": False, "intents": self._intents}
        await self.send_as_json({"op": self.IDENTIFY, "d": wanted})

    def log_receive(self, data: Any, /) -> None:
        """Keep what arrives."""
        frame = _frames.decode(data)
        if frame.op == _DISPATCH:
            self.arrived.append(frame)

    async def follow(self, seconds: float = 0.0) -> None:
        """Wait until something comes, a heartbeat at least. Raises `Lost` or `PlatformError`."""
        seconds = seconds or self._silence
        try:
            async with asyncio.timeout(seconds):
                await self.poll_event()
        except TimeoutError as error:
            raise Lost(f"nothing was heard of Discord for {seconds:g} s") from error
        except ReconnectWebSocket as error:
            raise Lost("Discord asks for another connection", resume=error.resume) from error
        except ConnectionClosed as error:
            raise closed(error) from error
        except (aiohttp.ClientError, OSError, msgspec.DecodeError) as error:
            raise Unreachable(f"the connection to Discord broke: {type(error).__name__}") from error

    async def part(self) -> None:
        """Hang up such that Discord keeps the session for a while."""
        with suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(_PARTING):
                await self.close()

"""A connection to Discord's gateway, on the library's socket."""

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
from talaria.platforms.discord.client import ApiClient
from talaria.platforms.discord.errors import to_close_error
from talaria.platforms.discord.session_state import GatewaySession
from talaria.platforms.discord.settings import DiscordSettings
from talaria.platforms.discord.wire import GatewayFrame

GUILDS, GUILD_MESSAGES, GUILD_REACTIONS = 1 << 0, 1 << 9, 1 << 10
DIRECT_MESSAGES, DIRECT_REACTIONS, MESSAGE_CONTENT = 1 << 12, 1 << 13, 1 << 15
_INTENTS = GUILDS | GUILD_MESSAGES | GUILD_REACTIONS | DIRECT_MESSAGES | DIRECT_REACTIONS
_DISPATCH = 0
_CLOSE_SECONDS = 2.0

_frame_decoder = msgspec.json.Decoder(GatewayFrame)


class ConnectionLost(Exception):
    """The connection was lost; ``resume`` says whether the session can be resumed on another one."""

    def __init__(self, reason: str, *, resume: bool = True) -> None:
        super().__init__(reason)
        self.resume = resume


class GatewaySocket(DiscordWebSocket):
    """One connection. ``frames`` has the received events that were not taken yet.

    The library sends heartbeats and handles gateway commands; events bypass its caches.
    """

    _discord_parsers: dict[str, Any] = {}  # noqa: RUF012 - as the library declares it
    shard_id = None
    shard_count = None

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, *, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(socket, loop=loop)
        self.frames: deque[GatewayFrame] = deque()
        self._intents = _INTENTS
        self._silence = 0.0

    @classmethod
    async def open_socket(cls, client: ApiClient, settings: DiscordSettings, login: GatewaySession) -> Self:
        """Connect and log in, resuming a session if there is one.

        Raises `PlatformError` or `ConnectionLost`.
        """
        gateway = yarl.URL(login.url)
        address = str(gateway.with_query(v=10, encoding="json"))
        gateway_socket = cls(await client.ask(lambda api: api.ws_connect(address)), loop=asyncio.get_running_loop())
        try:
            await gateway_socket.start_session(gateway, settings, login)
        except BaseException:
            await gateway_socket.disconnect()
            raise
        return gateway_socket

    async def start_session(self, gateway: yarl.URL, settings: DiscordSettings, login: GatewaySession) -> None:
        """Wait for the hello message, and identify."""
        self.gateway, self.token = gateway, settings.token
        self.session_id, self.sequence = login.session or None, login.sequence or None
        self._silence = settings.silence.total_seconds()
        self._max_heartbeat_timeout = self._silence * 2  # ours comes first, and waits for no close frame
        if settings.message_content:
            self._intents |= MESSAGE_CONTENT
        await self.receive_next(settings.patience.total_seconds())
        await (self.resume() if login.session else self.identify())

    async def identify(self) -> None:
        """Request a session."""
        properties = {"os": sys.platform, "browser": "talaria", "device": "talaria"}
        identity = {"token": self.token, "properties": properties, "compress": False, "intents": self._intents}
        await self.send_as_json({"op": self.IDENTIFY, "d": identity})

    def log_receive(self, data: Any, /) -> None:
        """Store received data."""
        frame = _frame_decoder.decode(data)
        if frame.op == _DISPATCH:
            self.frames.append(frame)

    async def receive_next(self, seconds: float = 0.0) -> None:
        """Wait for the next data, at least a heartbeat. Raises `ConnectionLost` or `PlatformError`."""
        seconds = seconds or self._silence
        try:
            async with asyncio.timeout(seconds):
                await self.poll_event()
        except TimeoutError as error:
            raise ConnectionLost(f"Discord sent nothing for {seconds:g} s") from error
        except ReconnectWebSocket as error:
            raise ConnectionLost("Discord asked us to reconnect", resume=error.resume) from error
        except ConnectionClosed as error:
            raise to_close_error(error) from error
        except (aiohttp.ClientError, OSError, msgspec.DecodeError) as error:
            raise Unreachable(f"the connection to Discord was lost: {type(error).__name__}") from error

    async def disconnect(self) -> None:
        """Disconnect such that Discord keeps the session for a while."""
        with suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.close()

"""Receive Discord events once and in order, across lost connections and expired sessions, with stored progress."""

import asyncio
import logging
import sys
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol, Self

import aiohttp
import msgspec
import yarl
from discord import ConnectionClosed
from discord.gateway import DiscordWebSocket, ReconnectWebSocket
from msgspec import Struct, structs

from talaria.contracts.store import Store
from talaria.contracts.values import NamedValue
from talaria.core.errors import Rejected, StoreError, Unreachable, UnreadableValue
from talaria.platforms.discord.client import ApiClient, pause, to_close_error
from talaria.platforms.discord.settings import DiscordSettings
from talaria.platforms.discord.wire import GatewayFrame

_MOST_CHANNELS = 50
GUILDS, GUILD_MESSAGES, GUILD_REACTIONS = 1 << 0, 1 << 9, 1 << 10
DIRECT_MESSAGES, DIRECT_REACTIONS, MESSAGE_CONTENT = 1 << 12, 1 << 13, 1 << 15
_INTENTS = GUILDS | GUILD_MESSAGES | GUILD_REACTIONS | DIRECT_MESSAGES | DIRECT_REACTIONS
_DISPATCH = 0
_CLOSE_SECONDS = 2.0
_frame_decoder = msgspec.json.Decoder(GatewayFrame)
_ATTEMPTS = 3
_MOST_MISSED = 100
_SAVE_INTERVAL = timedelta(seconds=1)
_READY_EVENTS = frozenset({"READY", "RESUMED"})
log = logging.getLogger(__name__)


class GatewaySession(Struct, frozen=True):
    """A session: its resume URL, and the number of the last event taken."""

    url: str
    session: str = ""
    sequence: int = 0


class ReadProgress(Struct, frozen=True, omit_defaults=True):
    """All read positions: the session, and the last message of each channel in which we talk."""

    login: GatewaySession | None = None
    seen: dict[str, str] = {}

    def with_seen(self, channel: str, message: str) -> dict[str, str]:
        """Return the positions with another message; the least recently used channels are dropped."""
        others = {channel_id: last for channel_id, last in self.seen.items() if channel_id != channel}
        newest = max(self.seen.get(channel, "0"), message, key=int)
        return dict([*others.items(), (channel, newest)][-_MOST_CHANNELS:])


READ_PROGRESS = NamedValue("discord_progress", ReadProgress)  # by account


class ProgressStore(Protocol):
    """A store for one small value."""

    async def load(self) -> ReadProgress:
        """Return what was saved last."""

    async def save(self, progress: ReadProgress) -> None:
        """Replace the stored value."""


class MemoryProgressStore:
    """A store in memory."""

    def __init__(self) -> None:
        self._progress = ReadProgress()

    async def load(self) -> ReadProgress:
        """Return what was saved last."""
        return self._progress

    async def save(self, progress: ReadProgress) -> None:
        """Replace the stored value."""
        self._progress = progress


class DurableProgressStore:
    """A store in the database, shared with later processes."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._name = name

    async def load(self) -> ReadProgress:
        """Return the last value; nothing if it can't be read any more."""
        try:
            return await self._store.read(lambda tx: READ_PROGRESS.get(tx, self._name)) or ReadProgress()
        except UnreadableValue:
            return ReadProgress()

    async def save(self, progress: ReadProgress) -> None:
        """Replace the stored value durably."""
        await self._store.write(lambda tx: READ_PROGRESS.write(tx, self._name, progress))


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


class Event(Struct, frozen=True):
    """A received event; ``fetched`` means that it was fetched later, as its channel has to be."""

    id: str
    name: str
    data: msgspec.Raw
    sequence: int = 0
    fetched: bool = False


class _Ready(Struct):
    session_id: str
    resume_gateway_url: str


class Receiver:
    """The events of one account. An event is acknowledged when the next one is requested."""

    def __init__(self, client: ApiClient, settings: DiscordSettings, state_store: ProgressStore) -> None:
        self._client = client
        self._settings = settings
        self._state_store = state_store
        self._progress = ReadProgress()
        self._socket: GatewaySocket | None = None
        self._new_login: GatewaySession | None = None  # stored once all missed events before it were taken
        self._missed: list[Event] = []
        self._saved_at = 0.0

    async def start(self) -> None:
        """Resume the last session, or start one and fetch missed messages."""
        self._progress = await self._state_store.load()
        await self._open_session()

    async def events(self) -> AsyncGenerator[Event, None]:
        """Yield events; a lost connection is reopened once, and the session resumed."""
        while True:
            while self._missed:
                yield self._missed[0]
                self._missed.pop(0)
            await self._commit_new_login()
            assert self._socket is not None
            while self._socket.frames:
                frame = self._socket.frames.popleft()
                yield Event(f"{self._socket.session_id}:{frame.s}", frame.t or "", frame.d, frame.s or 0)
                await self._confirm(frame.s or 0)
            try:
                await self._socket.receive_next()
            except ConnectionLost as connection_lost:
                log.info("discord: %s", connection_lost)
                await self._socket.disconnect()
                await self._open_session()

    def record_seen(self, channel: str, message: str, *, is_addressed: bool) -> None:
        """Record the read position of a channel in which we talk."""
        if message and (is_addressed or channel in self._progress.seen):
            self._progress = structs.replace(self._progress, seen=self._progress.with_seen(channel, message))

    async def disconnect(self) -> None:
        """Disconnect, and save all read positions."""
        if self._socket is not None:
            await self._socket.disconnect()
        await self._save()

    async def _open_session(self) -> None:
        """Connect: to the session's URL, then to the common one, then with a new session."""
        login = self._progress.login
        for _ in range(_ATTEMPTS):
            login = login or GatewaySession(await self._fetch_gateway_url())
            try:
                self._socket = await GatewaySocket.open_socket(self._client, self._settings, login)
                await self._wait_until_ready(self._socket)
            except (ConnectionLost, Unreachable) as error:
                if self._socket is not None:
                    await self._socket.disconnect()
                log.info("discord: %s", error)
                login = await self._choose_fallback_login(login, error)
            else:
                return
        raise Unreachable("Discord didn't start a session")

    async def _choose_fallback_login(
        self, login: GatewaySession, error: ConnectionLost | Unreachable
    ) -> GatewaySession | None:
        """Return the next login to try after a failure; raise the error if there is none."""
        if isinstance(error, ConnectionLost) and not error.resume:
            return None
        gateway_url = await self._fetch_gateway_url()
        if not login.session or login.url == gateway_url:
            raise Unreachable(str(error)) from error
        return structs.replace(login, url=gateway_url)

    async def _wait_until_ready(self, gateway_socket: GatewaySocket) -> None:
        seconds = self._settings.patience.total_seconds()
        while (frame := _find_ready_frame(gateway_socket)) is None:
            await gateway_socket.receive_next(seconds)
        if frame.t == "READY":
            ready = msgspec.json.decode(frame.d, type=_Ready)
            self._missed = await self._catch_up()
            self._new_login = GatewaySession(ready.resume_gateway_url, ready.session_id, frame.s or 0)
            if not self._missed:
                await self._commit_new_login()

    async def _commit_new_login(self) -> None:
        """Switch to a new session."""
        if self._new_login is not None:
            self._progress = structs.replace(self._progress, login=self._new_login)
            self._new_login = None
            await self._save()

    async def _fetch_gateway_url(self) -> str:
        _, url, limit = await self._client.ask(lambda api: api.get_bot_gateway())
        if limit["remaining"] <= 0:
            raise pause(limit["reset_after"] / 1000, everywhere=True)
        return url

    async def _catch_up(self) -> list[Event]:
        """Return messages missed in our channels: an expired session doesn't deliver them."""
        found: dict[int, Event] = {}
        for channel, last in self._progress.seen.items():
            try:
                messages = await self._client.ask(
                    lambda api, channel=channel, last=last: api.logs_from(channel, _MOST_MISSED, after=last)  # type: ignore[misc]
                )
            except Rejected as error:
                log.info("discord: can't read missed messages in %s: %s", channel, error)
                continue
            for one in messages:
                data = msgspec.Raw(msgspec.json.encode(one))
                found[int(one["id"])] = Event(one["id"], "MESSAGE_CREATE", data, fetched=True)
        return [event for _, event in sorted(found.items())]

    async def _confirm(self, sequence: int) -> None:
        if self._progress.login is not None:
            login = structs.replace(self._progress.login, sequence=sequence)
            self._progress = structs.replace(self._progress, login=login)
        if asyncio.get_running_loop().time() - self._saved_at > _SAVE_INTERVAL.total_seconds():
            await self._save()

    async def _save(self) -> None:
        """Save the position; events that come again because of a lost write are recognised."""
        self._saved_at = asyncio.get_running_loop().time()
        try:
            await self._state_store.save(self._progress)
        except StoreError as error:
            log.warning("discord: couldn't save the read position: %s", error)


def _find_ready_frame(gateway_socket: GatewaySocket) -> GatewayFrame | None:
    return next((frame for frame in gateway_socket.frames if frame.t in _READY_EVENTS), None)

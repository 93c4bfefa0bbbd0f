"""Socket Mode: receive envelopes through a WebSocket, and acknowledge them."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from msgspec import Struct
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from talaria.core.errors import BadCredentials, Rejected, Unreachable
from talaria.platforms.slack.client import ApiClient, silent_logger
from talaria.platforms.slack.settings import SlackSettings

# Slack waits for three seconds, then shows the person an error; it never sends these again.
_URGENT_KINDS = frozenset({"slash_commands", "interactive"})
_ACKNOWLEDGE_SECONDS = 2.0
_CLOSE_SECONDS = 1.0

log = logging.getLogger(__name__)


class Envelope(Struct, frozen=True):
    """A received envelope; ``attempt`` counts earlier deliveries."""

    kind: str
    id: str
    payload: dict[str, Any]
    attempt: int
    acknowledged: asyncio.Event


class Socket:
    """A connection maintained by the library, which also moves to another one when Slack asks."""

    def __init__(self, client: SocketModeClient, settings: SlackSettings) -> None:
        self._client = client
        self._check_seconds = settings.ping.total_seconds() / 2
        self._queue: asyncio.Queue[Envelope] = asyncio.Queue()
        self._closing = asyncio.Event()
        client.socket_mode_request_listeners.append(self._receive)

    async def next_envelope(self) -> Envelope:
        """Return the next envelope; raises `Unreachable` if the connection is dead."""
        missed = 0
        while True:
            try:
                async with asyncio.timeout(self._check_seconds):
                    return await self._queue.get()
            except TimeoutError:
                missed = 0 if await self._client.is_connected() else missed + 1
            if missed > 1:
                raise Unreachable("the connection to Slack was lost")

    async def acknowledge(self, envelope: Envelope) -> None:
        """Acknowledge an envelope; if that is lost, it comes again and is recognised."""
        if not envelope.acknowledged.is_set():
            envelope.acknowledged.set()
            with suppress(ConnectionError):
                await self._client.send_socket_mode_response(SocketModeResponse(envelope.id))

    async def close(self) -> None:
        """Disconnect."""
        self._closing.set()
        self._client.closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._client.disconnect()  # type: ignore[no-untyped-call]
        await self._client.close()  # type: ignore[no-untyped-call]
        running = [self._client.message_processor, self._client.current_session_monitor, self._client.message_receiver]
        await asyncio.gather(*(task for task in running if task is not None), return_exceptions=True)

    async def _receive(self, _: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        """Store received data until it is requested; called by the library."""
        envelope = Envelope(
            request.type, request.envelope_id, request.payload, request.retry_attempt or 0, asyncio.Event()
        )
        if self._closing.is_set():
            return
        self._queue.put_nowait(envelope)
        if request.type not in _URGENT_KINDS:
            return
        try:
            async with asyncio.timeout(_ACKNOWLEDGE_SECONDS):
                await envelope.acknowledged.wait()
        except TimeoutError:
            if not self._closing.is_set():
                await self.acknowledge(envelope)


@asynccontextmanager
async def open_socket(api_client: ApiClient, settings: SlackSettings) -> AsyncIterator[Socket]:
    """Connect, and disconnect at the end; raises `BadCredentials` if Slack rejects the app."""
    try:
        opened = await api_client.ask(api_client.web.apps_connections_open(app_token=settings.app_token))
    except Rejected as error:
        raise BadCredentials(f"Slack refused a connection with this app-level token: {error}") from error
    client = SocketModeClient(
        settings.app_token,
        logger=silent_logger(),
        web_client=api_client.web,
        auto_reconnect_enabled=False,
        ping_interval=settings.ping.total_seconds(),
    )
    client.wss_uri = str(opened.get("url", ""))
    socket = Socket(client, settings)
    try:
        try:
            async with asyncio.timeout(settings.patience.total_seconds()):
                await client.connect()  # type: ignore[no-untyped-call]
        except TimeoutError as error:
            raise Unreachable("can't reach Slack by WebSocket") from error
        yield socket
    finally:
        await socket.close()

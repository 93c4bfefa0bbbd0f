"""Socket Mode: what Slack hands over through a websocket, and how it is told that something was taken."""

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
from talaria.platforms.slack.calls import Calls, quiet_log
from talaria.platforms.slack.settings import SlackSettings

# Slack waits for three seconds, and shows the person an error then; it hands over neither of these again.
_AT_ONCE = frozenset({"slash_commands", "interactive"})
_LATEST = 2.0
_PARTING = 1.0

log = logging.getLogger(__name__)


class Envelope(Struct, frozen=True):
    """Something that was handed over; ``attempt`` counts how often it was before."""

    kind: str
    id: str
    payload: dict[str, Any]
    attempt: int
    settled: asyncio.Event


class Socket:
    """A connection that the library keeps: it also moves to another one where Slack asks for that."""

    def __init__(self, client: SocketModeClient, settings: SlackSettings) -> None:
        self._client = client
        self._pulse = settings.ping.total_seconds() / 2
        self._waiting: asyncio.Queue[Envelope] = asyncio.Queue()
        self._closing = asyncio.Event()
        client.socket_mode_request_listeners.append(self._take)

    async def following(self) -> Envelope:
        """Return what is handed over next; raises `Unreachable` where the connection is dead."""
        missed = 0
        while True:
            try:
                async with asyncio.timeout(self._pulse):
                    return await self._waiting.get()
            except TimeoutError:
                missed = 0 if await self._client.is_connected() else missed + 1
            if missed > 1:
                raise Unreachable("the connection to Slack is broken")

    async def acknowledge(self, envelope: Envelope) -> None:
        """Tell Slack that something was taken; where that does not arrive it comes again and is recognised."""
        if not envelope.settled.is_set():
            envelope.settled.set()
            with suppress(ConnectionError):
                await self._client.send_socket_mode_response(SocketModeResponse(envelope.id))

    async def close(self) -> None:
        """Hang up, whether anybody listens or not."""
        self._closing.set()
        self._client.closed = True
        with suppress(TimeoutError):
            async with asyncio.timeout(_PARTING):
                await self._client.disconnect()  # type: ignore[no-untyped-call]
        await self._client.close()  # type: ignore[no-untyped-call]
        running = [self._client.message_processor, self._client.current_session_monitor, self._client.message_receiver]
        await asyncio.gather(*(task for task in running if task is not None), return_exceptions=True)

    async def _take(self, _: AsyncBaseSocketModeClient, request: SocketModeRequest) -> None:
        """Keep what comes until it is asked for; the library runs this beside everything else."""
        envelope = Envelope(
            request.type, request.envelope_id, request.payload, request.retry_attempt or 0, asyncio.Event()
        )
        if self._closing.is_set():
            return
        self._waiting.put_nowait(envelope)
        if request.type not in _AT_ONCE:
            return
        try:
            async with asyncio.timeout(_LATEST):
                await envelope.settled.wait()
        except TimeoutError:
            if not self._closing.is_set():
                await self.acknowledge(envelope)


@asynccontextmanager
async def open_socket(calls: Calls, settings: SlackSettings) -> AsyncIterator[Socket]:
    """Connect, and hang up at the end; raises `BadCredentials` where Slack does not know the app."""
    try:
        opened = await calls.ask(calls.web.apps_connections_open(app_token=settings.app_token))
    except Rejected as error:
        raise BadCredentials(f"Slack does not open a connection for this app-level token: {error}") from error
    client = SocketModeClient(
        settings.app_token,
        logger=quiet_log(),
        web_client=calls.web,
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
            raise Unreachable("Slack cannot be reached by a websocket") from error
        yield socket
    finally:
        await socket.close()

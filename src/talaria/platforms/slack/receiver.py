"""Receive an app's updates, each acknowledged when the next is requested, and fetch those missed while away."""

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from msgspec import Struct, structs
from slack_sdk.socket_mode.aiohttp import SocketModeClient
from slack_sdk.socket_mode.async_client import AsyncBaseSocketModeClient
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.socket_mode.response import SocketModeResponse

from talaria.contracts.platform import Incoming
from talaria.contracts.store import Store
from talaria.contracts.values import NamedValue
from talaria.core.errors import BadCredentials, PlatformError, Rejected, Unreachable
from talaria.platforms.slack.client import ApiClient, NameDirectory, silent_logger
from talaria.platforms.slack.events import Callback, Event, Interaction, SlashCommand, read_payload
from talaria.platforms.slack.incoming import (
    BotIdentity,
    EventContext,
    event_channel,
    event_people,
    event_thread,
    read_command,
    read_event,
    read_interaction,
)
from talaria.platforms.slack.sender import MessagePoster
from talaria.platforms.slack.settings import SlackSettings
from talaria.platforms.slack.threads import Assistant, JoinedThreads

READ_POSITION = NamedValue("slack_position", str)  # by account and channel
_MOST_CHANNELS = 20
_MOST_MESSAGES = 100
_MAX_AGE = timedelta(days=1)
_RECORD_INTERVAL = 30.0
_TIME_LIMIT = 20.0
log = logging.getLogger(__name__)
# Slack waits for three seconds, then shows the person an error; it never sends these again.
_URGENT_KINDS = frozenset({"slash_commands", "interactive"})
_ACKNOWLEDGE_SECONDS = 2.0
_CLOSE_SECONDS = 1.0
_MOST_IDS = 5000


class PositionStore(Protocol):
    """A store for the time of the latest message taken in each channel."""

    async def put(self, channel: str, stamp: str) -> None:
        """Save one durably."""

    async def all(self) -> dict[str, str]:
        """Return them by channel."""


class MemoryPositionStore:
    """A `PositionStore` in memory."""

    def __init__(self) -> None:
        self._stamps: dict[str, str] = {}

    async def put(self, channel: str, stamp: str) -> None:
        """Save one in memory."""
        self._stamps[channel] = stamp

    async def all(self) -> dict[str, str]:
        """Return them by channel."""
        return dict(self._stamps)


class DurablePositionStore:
    """A `PositionStore` in the database."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._prefix = f"{name}:"

    async def put(self, channel: str, stamp: str) -> None:
        """Save one durably."""
        await self._store.write(lambda tx: READ_POSITION.write(tx, f"{self._prefix}{channel}", stamp))

    async def all(self) -> dict[str, str]:
        """Return them by channel."""
        found = await self._store.read(lambda tx: READ_POSITION.items(tx, self._prefix))
        return {key.removeprefix(self._prefix): stamp for key, stamp in found.items()}


class _Page(Struct, frozen=True):
    """A page of messages of a channel."""

    channel: str
    messages: list[dict[str, Any]]


class Backfill:
    """Records read positions from time to time, and finds the messages after them."""

    def __init__(self, client: ApiClient, positions: PositionStore, threads: JoinedThreads) -> None:
        self._client = client
        self._positions = positions
        self._threads = threads
        self._recorded_at: dict[str, float] = {}

    async def record_position(self, channel: str, stamp: str) -> None:
        """Record that a message was taken; a slightly old position is enough, since duplicates are recognised."""
        now = asyncio.get_running_loop().time()
        if now - self._recorded_at.get(channel, -_RECORD_INTERVAL) >= _RECORD_INTERVAL:
            await self._positions.put(channel, stamp)
            self._recorded_at[channel] = now

    async def find(self) -> list[Event]:
        """Return messages after the recorded positions, oldest first: in the latest channels, at most one day.

        If Slack doesn't answer in time, the result is incomplete.
        """
        earliest = f"{time.time() - _MAX_AGE.total_seconds():.6f}"
        stamps = {channel: max(stamp, earliest) for channel, stamp in (await self._positions.all()).items()}
        latest = sorted(stamps, key=lambda channel: stamps[channel], reverse=True)[:_MOST_CHANNELS]
        found: dict[tuple[str, str], Event] = {}
        try:
            async with asyncio.timeout(_TIME_LIMIT):
                for channel in latest:
                    _collect(await self._read_history(channel, stamps[channel]), stamps[channel], found)
                for channel, thread in await self._threads.latest(_MOST_CHANNELS):
                    since = stamps.get(channel, earliest)
                    _collect(await self._read_replies(channel, thread, since), since, found)
        except (TimeoutError, PlatformError) as error:
            log.warning("some missed messages couldn't be read: %s", str(error) or "it took too long")
        return [event for _, event in sorted(found.items(), key=lambda one: one[0][1])]

    async def _read_history(self, channel: str, since: str) -> _Page:
        request = self._client.web.conversations_history(channel=channel, oldest=since, limit=_MOST_MESSAGES)
        return _Page(channel, ((await self._client.attempt(request)) or {}).get("messages") or [])

    async def _read_replies(self, channel: str, thread: str, since: str) -> _Page:
        request = self._client.web.conversations_replies(channel=channel, ts=thread, oldest=since, limit=_MOST_MESSAGES)
        return _Page(channel, ((await self._client.attempt(request)) or {}).get("messages") or [])


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


class SeenIds:
    """Recently taken messages: Slack sends them again if the acknowledgement was late.

    It does so in an envelope with another id. A message that mentions us also comes as two events.
    """

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, external_id: str) -> bool:
        return external_id in self._ids

    def add(self, external_id: str) -> None:
        """Add one."""
        self._ids[external_id] = None
        if len(self._ids) > _MOST_IDS:
            self._ids.popitem(last=False)


class ReceiverServices(Struct, frozen=True, kw_only=True):
    """Services of a receiver."""

    poster: MessagePoster
    threads: JoinedThreads
    directory: NameDirectory
    assistant: Assistant
    missed: Backfill


class Receiver:
    """Reads envelopes from a socket, and looks up the context."""

    def __init__(self, identity: BotIdentity, seen_ids: SeenIds, services: ReceiverServices) -> None:
        self._identity = identity
        self._seen_ids = seen_ids
        self._poster = services.poster
        self._threads = services.threads
        self._directory = services.directory
        self._assistant = services.assistant
        self._backfill = services.missed

    async def receive(self, socket: Socket, missed: Sequence[Event]) -> AsyncGenerator[Incoming, None]:
        """Yield missed messages, then updates until the connection fails."""
        for event in missed:
            incoming = self._name_server(await self._read_event(event), {})
            if incoming is not None and await self._is_unseen(incoming):
                yield incoming
                await self._mark_taken(incoming)
        while True:
            envelope = await socket.next_envelope()
            incoming = self._name_server(await self._read(envelope), envelope.payload)
            if incoming is not None and await self._is_unseen(incoming):
                yield incoming
                await self._mark_taken(incoming)
            elif incoming is not None:
                log.info(
                    "%s: delivered again, attempt %d: %s",
                    self._identity.platform,
                    envelope.attempt,
                    incoming.external_id,
                )
            await socket.acknowledge(envelope)
            if incoming is not None and incoming.text:
                await self._assistant.name(incoming.address, incoming.text)

    def _name_server(self, incoming: Incoming | None, payload: Mapping[str, Any]) -> Incoming | None:
        return incoming and structs.replace(incoming, server=self._identity.find_workspace(payload))

    async def _is_unseen(self, incoming: Incoming) -> bool:
        """Return whether a message wasn't taken yet; a thread that mentions us is joined before that."""
        if incoming.external_id in self._seen_ids:
            return False
        if incoming.addressed and incoming.address.chat_type == "thread":
            await self._threads.join(incoming.address.chat_id, incoming.address.thread_id)
        return True

    async def _mark_taken(self, incoming: Incoming) -> None:
        self._seen_ids.add(incoming.external_id)
        if incoming.message_id and not (incoming.edited or incoming.button or incoming.reaction):
            await self._backfill.record_position(incoming.address.chat_id, incoming.message_id)

    async def _read(self, envelope: Envelope) -> Incoming | None:
        match envelope.kind:
            case "slash_commands":
                command = read_payload(envelope.payload, SlashCommand)
                return read_command(command, self._identity, datetime.now(UTC)) if command else None
            case "interactive":
                interaction = read_payload(envelope.payload, Interaction)
                return read_interaction(interaction, self._identity, datetime.now(UTC)) if interaction else None
            case "events_api":
                callback = read_payload(envelope.payload, Callback)
                return await self._read_event(callback.event) if callback else None
            case kind:
                log.info("%s: unknown kind of envelope: %s", self._identity.platform, kind)
                return None

    async def _read_event(self, event: Event) -> Incoming | None:
        if event.type == "assistant_thread_started":
            await self._assistant.greet(event.assistant_thread)
            return None
        # Our own messages are reported repeatedly while we write; they need no lookups.
        if read_event(event, self._identity, EventContext()) is None:
            return None
        channel = event_channel(event)
        people = [one for one in event_people(event) if one != self._identity.user_id]
        context = EventContext(
            names={self._identity.user_id: self._identity.name, **await self._directory.people(people)},
            chat_name=await self._directory.channel(channel),
            ours=await self._threads.has(channel, event_thread(event)),
            thread=await self._find_reaction_thread(event),
        )
        return read_event(event, self._identity, context)

    async def _find_reaction_thread(self, event: Event) -> str:
        if event.type != "reaction_added" or event.item_user != self._identity.user_id:
            return ""
        return await self._poster.thread_of(event.item.channel, event.item.ts)


def _collect(page: _Page, since: str, found: dict[tuple[str, str], Event]) -> None:
    for event in _iterate_events(page):
        if event.ts > since:
            found[page.channel, event.ts] = event


def _iterate_events(page: _Page) -> Iterable[Event]:
    for message in page.messages:
        callback = read_payload({"event": {**message, "type": "message", "channel": page.channel}}, Callback)
        if callback is not None:
            yield callback.event

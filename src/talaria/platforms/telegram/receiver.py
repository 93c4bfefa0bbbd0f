"""Receive updates by long polling or by webhook, with albums that arrive in parts; each is confirmed when taken."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from hashlib import sha256
from typing import Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import Raw

from talaria.contracts.platform import BatchedUpdates, Incoming
from talaria.contracts.store import Store
from talaria.contracts.values import NamedValue
from talaria.core.errors import PlatformError, Unreachable
from talaria.platforms.push_receiver import PushedItem, PushReceiver, PushRequest, PushResponse
from talaria.platforms.signatures import BadSignature, check_signatures
from talaria.platforms.telegram.client import BotApi
from talaria.platforms.telegram.incoming import ALLOWED_UPDATES, BotIdentity, ParsedUpdate, album_key, read_updates
from talaria.platforms.telegram.settings import TelegramSettings, Webhook
from talaria.platforms.telegram.wire import TelegramUpdate, WebhookInfo, decode_update, decode_updates
from talaria.platforms.webhook_endpoint import BodyReaders, PostRejected

# How much longer than promised a poll may take before the connection counts as dead.
_GRACE = timedelta(seconds=10)
_MOST_ALBUM_POLLS = 4
_CLOSE_TIMEOUT = timedelta(seconds=2)
_MOST_RECENT = 2000
_HEADER = "x-telegram-bot-api-secret-token"
_MAX_BODY_BYTES = 4 * 1024 * 1024
_MOST_BODIES, _READING = 64, timedelta(seconds=10)
_ACKNOWLEDGE_TIMEOUT = timedelta(seconds=25)
ALBUM_PART = NamedValue("telegram_album_part", str)  # an update as JSON, by account and number


class UpdatePoller:
    """The updates of one connection, in batches; `confirm` says up to which they were taken."""

    def __init__(self, client: BotApi, settings: TelegramSettings) -> None:
        self._client = client
        self._settings = settings
        self._grace = min(_GRACE, settings.patience)
        self._next: int | None = None
        self._sent_offset: int | None = None

    async def start(self) -> None:
        """Request all kinds of updates we need: Telegram stores some kinds only after a request."""
        await self._ask(timedelta(0), limit=1)

    async def batch(self) -> Sequence[TelegramUpdate]:
        """Return new updates, as soon as there are some; the request confirms earlier ones."""
        while not (updates := await self._ask(self._settings.poll)):
            pass
        for _ in range(_MOST_ALBUM_POLLS):
            if not album_key(updates[-1]):
                break
            await asyncio.sleep(self._settings.album_pause.total_seconds())
            previous, updates = updates, await self._ask(timedelta(0))
            if len(updates) <= len(previous):
                break
        return updates

    def confirm(self, update_id: int) -> None:
        """Record that everything up to this one was taken."""
        self._next = update_id + 1

    async def part(self) -> None:
        """Confirm taken updates if that takes no time; otherwise they come again and are recognised."""
        if self._next != self._sent_offset:
            with suppress(PlatformError):
                await self._ask(timedelta(0), limit=1, patience=_CLOSE_TIMEOUT)

    async def _ask(
        self, wait: timedelta, *, limit: int = 100, patience: timedelta | None = None
    ) -> Sequence[TelegramUpdate]:
        offset = self._next
        sources = await self._client.ask(
            "getUpdates",
            list[Raw],
            patience or wait + self._grace,
            offset=offset,
            limit=limit,
            timeout=int(wait.total_seconds()),
            allowed_updates=ALLOWED_UPDATES,
        )
        updates = decode_updates(sources)
        self._sent_offset = offset
        return updates


class RecentMessages:
    """The latest received messages, as far as we read them."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], tuple[str, ...]] = OrderedDict()

    def is_unseen(self, incoming: Incoming) -> bool:
        """Return whether this is new; an edit that leaves the text unchanged is not."""
        return not incoming.edited or self._seen.get(_get_message_key(incoming)) != _get_message_content(incoming)

    def add(self, incoming: Incoming) -> None:
        """Add taken messages; others must count as new when they come again."""
        if incoming.button or incoming.reaction or incoming.formerly:
            return
        self._seen[_get_message_key(incoming)] = _get_message_content(incoming)
        self._seen.move_to_end(_get_message_key(incoming))
        if len(self._seen) > _MOST_RECENT:
            self._seen.popitem(last=False)


class PolledUpdates(BatchedUpdates):
    """Updates confirmed when more are requested; ``acknowledge`` stops a button's progress indicator."""

    def __init__(
        self,
        poller: UpdatePoller,
        identity: BotIdentity,
        recent: RecentMessages,
        acknowledge: Callable[[ParsedUpdate], Awaitable[None]],
    ) -> None:
        self._poller = poller
        self._identity = identity
        self._recent = recent
        self._acknowledge = acknowledge
        self._pending: deque[ParsedUpdate] = deque()
        self._handed_out: list[ParsedUpdate] = []

    async def __anext__(self) -> Incoming:
        self._confirm()
        while (incoming := self._take_next(edits=True)) is None:
            self._confirm()
            self._pending.extend(read_updates(await self._poller.batch(), self._identity))
            await asyncio.gather(*map(self._acknowledge, self._pending))
        return incoming

    def at_hand(self, most: int) -> Sequence[Incoming]:
        """Return further updates of the last poll, up to an edit: whether that is new depends on the others."""
        found: list[Incoming] = []
        while len(found) < most and (incoming := self._take_next(edits=False)) is not None:
            found.append(incoming)
        return found

    def _take_next(self, *, edits: bool) -> Incoming | None:
        while self._pending:
            candidate = self._pending[0].incoming
            if candidate is not None and candidate.edited and not edits:
                return None
            self._handed_out.append(self._pending.popleft())
            if candidate is not None and self._recent.is_unseen(candidate):
                return candidate
        return None

    def _confirm(self) -> None:
        for parsed_update in self._handed_out:
            if parsed_update.incoming is not None:
                self._recent.add(parsed_update.incoming)
            self._poller.confirm(parsed_update.last_update)
        self._handed_out.clear()


class WebhookServer:
    """The server that Telegram calls; during silence, Telegram is asked whether it still does."""

    def __init__(self, client: BotApi, settings: Webhook, bot: TelegramSettings) -> None:
        self._client = client
        self._settings = settings
        self._secret = settings.secret or sha256(f"webhook:{bot.token}".encode()).hexdigest()
        self._check_interval = 2 * bot.poll
        self._readers = BodyReaders(_MOST_BODIES, _READING)
        self._receiver: PushReceiver[TelegramUpdate] = PushReceiver(settings.host, settings.port, _ACKNOWLEDGE_TIMEOUT)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Listen, and ask Telegram to call; updates it can't deliver later stay there."""
        path = urlsplit(self._settings.public_url).path or "/"
        async with self._receiver.serve(path, self._receive, largest=_MAX_BODY_BYTES):
            await self._register()
            yield

    async def next_item(self, timeout_after: timedelta | None = None) -> PushedItem[TelegramUpdate] | None:
        """Return the next update, ``None`` if none comes within some time.

        Without a time it waits. Raises `Unreachable` if Telegram no longer calls here.
        """
        while True:
            pushed = await self._receiver.next_item(timeout_after or self._check_interval)
            if pushed is not None or timeout_after is not None:
                return pushed
            await self._check_webhook()

    async def _check_webhook(self) -> None:
        """Check that silence means that there are no updates."""
        info = await self._client.ask("getWebhookInfo", WebhookInfo)
        if info.url != self._settings.public_url:
            raise Unreachable("the webhook of this bot was removed by another program")
        if info.pending_update_count and info.last_error_message and self._receiver.is_empty:
            raise Unreachable(f"Telegram can't deliver pending updates: {info.last_error_message}")

    async def _register(self) -> None:
        # One connection at a time, so that updates arrive in order.
        await self._client.ask(
            "setWebhook",
            bool,
            url=self._settings.public_url,
            max_connections=1,
            allowed_updates=ALLOWED_UPDATES,
            secret_token=self._secret,
        )

    async def _receive(self, request: PushRequest) -> PushResponse:
        try:
            check_signatures(self._secret, [request.headers.get(_HEADER, "")])
        except BadSignature:
            return PushResponse(403)
        try:
            body = await self._readers.read(request)
            msgspec.json.decode(body, type=dict[str, Raw])
        except PostRejected as rejected:
            return PushResponse(rejected.status)
        except msgspec.MsgspecError:
            return PushResponse(400)
        update = decode_update(body)
        if update is None:
            return PushResponse()  # it would come again forever
        return PushResponse(200 if await self._receiver.push(update) else 503)


class AlbumStore(Protocol):
    """A store for the parts of an album until all of it was taken."""

    async def put(self, number: int, part: str) -> None:
        """Save one durably, under its update number."""

    async def parts(self) -> list[str]:
        """Return the stored parts, by number."""

    async def clear(self, numbers: list[int]) -> None:
        """Delete these."""


class MemoryAlbumStore:
    """An `AlbumStore` in memory."""

    def __init__(self) -> None:
        self._parts: dict[int, str] = {}

    async def put(self, number: int, part: str) -> None:
        """Save one in memory."""
        self._parts[number] = part

    async def parts(self) -> list[str]:
        """Return the stored parts, by number."""
        return [part for _, part in sorted(self._parts.items())]

    async def clear(self, numbers: list[int]) -> None:
        """Delete these."""
        for number in numbers:
            self._parts.pop(number, None)


class DurableAlbumStore:
    """An `AlbumStore` in the database."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        self._prefix = f"{name}:"

    async def put(self, number: int, part: str) -> None:
        """Save one durably, under its update number."""
        await self._store.write(lambda tx: ALBUM_PART.write(tx, self._make_key(number), part))

    async def parts(self) -> list[str]:
        """Return the stored parts, by number."""
        parts = await self._store.read(lambda tx: ALBUM_PART.items(tx, self._prefix))
        return list(parts.values())

    async def clear(self, numbers: list[int]) -> None:
        """Delete these."""
        await self._store.write(lambda tx: [ALBUM_PART.delete(tx, self._make_key(number)) for number in numbers])

    def _make_key(self, number: int) -> str:
        return f"{self._prefix}{number:020}"


class AlbumCollector:
    """The updates of a webhook, with albums complete; `confirm` says up to which they were taken.

    Telegram sends the next part of an album only after the one before was accepted: it is stored here first, and found
    by the next process after a crash.
    """

    def __init__(self, server: WebhookServer, state_store: AlbumStore, pause: timedelta) -> None:
        self._server = server
        self._state_store = state_store
        self._pause = pause
        self._parts: list[TelegramUpdate] = []
        self._pushed: PushedItem[TelegramUpdate] | None = None

    async def start(self) -> None:
        """Load the stored parts that were not taken."""
        stored = [decode_update(part.encode()) for part in await self._state_store.parts()]
        self._parts = [part for part in stored if part is not None]

    async def next_item(self) -> list[TelegramUpdate]:
        """Return the next item: an album without new parts for a while, or one update."""
        while True:
            if self._pushed is None:
                self._pushed = await self._server.next_item(self._pause if self._parts else None)
            pushed = self._pushed
            if pushed is not None and self._continues_album(pushed.item):
                await self._store_part(pushed.item)
                pushed.acknowledge(accepted=True)
                self._pushed = None
            elif self._parts:
                return list(self._parts)
            elif pushed is not None:
                return [pushed.item]

    async def confirm(self, update_id: int) -> None:
        """Record that everything up to this one was taken."""
        accepted = [part.update_id for part in self._parts if part.update_id <= update_id]
        if accepted:
            self._parts = [part for part in self._parts if part.update_id > update_id]
            await self._state_store.clear(accepted)
        elif self._pushed is not None:
            self._pushed.acknowledge(accepted=True)
            self._pushed = None

    def part(self) -> None:
        """Leave updates that were not taken to Telegram."""
        if self._pushed is not None:
            self._pushed.acknowledge(accepted=False)

    def _continues_album(self, update: TelegramUpdate) -> bool:
        """Return whether an update is a part of the album, or of one that may start."""
        return bool(album_key(update)) and (not self._parts or album_key(update) == album_key(self._parts[-1]))

    async def _store_part(self, update: TelegramUpdate) -> None:
        await self._state_store.put(update.update_id, msgspec.json.encode(update).decode())
        if update.update_id not in {part.update_id for part in self._parts}:
            self._parts.append(update)


def _get_message_key(incoming: Incoming) -> tuple[str, str]:
    return incoming.address.chat_id, incoming.message_id


def _get_message_content(incoming: Incoming) -> tuple[str, ...]:
    return incoming.text, *(one.name for one in incoming.attachments)

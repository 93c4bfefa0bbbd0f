"""Receive updates by long polling: taken updates are confirmed with the next poll."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import timedelta

from msgspec import Raw

from talaria.contracts.platform import BatchedUpdates, Incoming
from talaria.core.errors import PlatformError
from talaria.platforms.telegram.client import BotApi
from talaria.platforms.telegram.incoming import ALLOWED_UPDATES, BotIdentity, ParsedUpdate, album_key, read_updates
from talaria.platforms.telegram.settings import TelegramSettings
from talaria.platforms.telegram.wire import TelegramUpdate, decode_updates

# How much longer than promised a poll may take before the connection counts as dead.
_GRACE = timedelta(seconds=10)


_MOST_ALBUM_POLLS = 4


_CLOSE_TIMEOUT = timedelta(seconds=2)


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


_MOST_RECENT = 2000


class RecentMessages:
    """The latest received messages, as far as we read them."""

    def __init__(self) -> None:
        self._seen: OrderedDict[tuple[str, str], tuple[str, ...]] = OrderedDict()

    def is_unseen(self, incoming: Incoming) -> bool:
        """Return whether this is new; an edit that leaves the text unchanged is not."""
        return not incoming.edited or self._seen.get(_message_key(incoming)) != _message_content(incoming)

    def add(self, incoming: Incoming) -> None:
        """Add taken messages; others must count as new when they come again."""
        if incoming.button or incoming.reaction or incoming.formerly:
            return
        self._seen[_message_key(incoming)] = _message_content(incoming)
        self._seen.move_to_end(_message_key(incoming))
        if len(self._seen) > _MOST_RECENT:
            self._seen.popitem(last=False)


def _message_key(incoming: Incoming) -> tuple[str, str]:
    return incoming.address.chat_id, incoming.message_id


def _message_content(incoming: Incoming) -> tuple[str, ...]:
    return incoming.text, *(one.name for one in incoming.attachments)


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
        while (incoming := self._next(edits=True)) is None:
            self._confirm()
            self._pending.extend(read_updates(await self._poller.batch(), self._identity))
            await asyncio.gather(*map(self._acknowledge, self._pending))
        return incoming

    def at_hand(self, most: int) -> Sequence[Incoming]:
        """Return further updates of the last poll, up to an edit: whether that is new depends on the others."""
        found: list[Incoming] = []
        while len(found) < most and (incoming := self._next(edits=False)) is not None:
            found.append(incoming)
        return found

    def _next(self, *, edits: bool) -> Incoming | None:
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

"""Pending updates for the bot: confirmed by offset, polled by one client at a time."""

import asyncio
from collections.abc import Callable, Sequence

from msgspec import Struct

from talaria.testing.telegram_server.parts import Wire
from talaria.testing.telegram_server.refusals import conflict


class Changes:
    """A changing state, and the tasks waiting for it."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def happened(self) -> None:
        """Wake all waiting tasks."""
        self._next.set()
        self._next = asyncio.Event()

    async def until(self, holds: Callable[[], bool], *, within: float) -> None:
        """Return as soon as ``holds()``; raise `TimeoutError` after so many seconds."""
        async with asyncio.timeout(within):
            while not holds():
                await self._next.wait()


KINDS = frozenset(
    {
        "message", "edited_message", "channel_post", "edited_channel_post", "business_connection", "business_message",
        "edited_business_message", "deleted_business_messages", "guest_message", "message_reaction",
        "message_reaction_count", "inline_query", "chosen_inline_result", "callback_query", "shipping_query",
        "pre_checkout_query", "purchased_paid_media", "poll", "poll_answer", "my_chat_member", "chat_member",
        "chat_join_request", "chat_boost", "removed_chat_boost", "managed_bot",
    }
)  # fmt: skip


DEFAULT_KINDS = KINDS - {"chat_member", "message_reaction", "message_reaction_count"}


_FIRST_ID = 870_000_001


class Update(Struct, frozen=True):
    """An update for the bot."""

    id: int
    kind: str
    body: Wire

    def wire(self) -> Wire:
        """Return the ``Update``."""
        return {"update_id": self.id, self.kind: self.body}


class Updates:
    """The queue of a bot's updates; ``all`` has every one that was ever in it."""

    def __init__(self, changes: Changes) -> None:
        self.all: list[Update] = []
        self.pending: list[Update] = []
        self.allowed = DEFAULT_KINDS
        self.webhook = False
        self._changes = changes
        self._repeated: list[Update] = []
        self._poller = 0

    def put(self, kind: str, body: Wire) -> Update | None:
        """Add an update, unless the bot did not ask for its kind."""
        if kind not in self.allowed:
            return None
        update = Update(_FIRST_ID + len(self.all), kind, body)
        self.all.append(update)
        self.pending.append(update)
        self._changes.happened()
        return update

    def put_again(self, update: Update, times: int) -> None:
        """Deliver an update so many times more, whatever the bot has confirmed."""
        self._repeated += [update] * times
        self._changes.happened()

    def allow(self, kinds: Sequence[str] | None) -> None:
        """Take note of what the bot wants; an empty list is the default, nothing leaves it as it is."""
        if kinds is not None:
            self.allowed = KINDS.intersection(kinds) if kinds else DEFAULT_KINDS

    def forget(self) -> None:
        """Drop all that waits."""
        self.pending.clear()
        self._repeated.clear()

    def confirm(self, offset: int) -> None:
        """Delete updates before an offset; a negative one keeps that many of the last."""
        if offset < 0:
            self.pending = self.pending[offset:]
        elif offset:
            self.pending = [update for update in self.pending if update.id >= offset]

    def first(self) -> Update | None:
        """Return the next updates without removing them."""
        return next(iter([*self._repeated, *self.pending]), None)

    def delivered(self, update: Update) -> None:
        """Take away what `first` returned."""
        (self._repeated if update in self._repeated else self.pending).remove(update)

    async def poll(self, *, limit: int, timeout: float) -> list[Update]:  # noqa: ASYNC109 - Telegram's own word
        """Wait for updates; a second request replaces one that is still waiting."""
        self._poller += 1
        mine = self._poller
        self._changes.happened()
        try:
            await self._changes.until(
                lambda: bool(self.first()) or self._poller != mine or self.webhook, within=max(timeout, 0.001)
            )
        except TimeoutError:
            return []
        if self.webhook:
            raise conflict("terminated by setWebhook request")
        if self._poller != mine:
            raise conflict("terminated by other getUpdates request; make sure that only one bot instance is running")
        return self._take(limit)

    def _take(self, limit: int) -> list[Update]:
        once = list({update.id: update for update in self._repeated}.values())
        for update in once:
            self._repeated.remove(update)
        return [*once, *self.pending][:limit]

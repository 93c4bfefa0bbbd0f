"""Updates by long polling: what was taken is confirmed when more is asked for."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta

from telegram import Update

from talaria.core.errors import PlatformError
from talaria.platforms.telegram.calls import Calls
from talaria.platforms.telegram.incoming import ALLOWED_UPDATES, album_of
from talaria.platforms.telegram.settings import TelegramSettings

# How much longer than promised the answer to a poll may take before the connection counts as dead.
_GRACE = timedelta(seconds=10)
_MOST_LOOKS = 4
_PARTING = timedelta(seconds=2)


class Polling:
    """The updates of one connection, in batches; `confirm` says up to which they were taken."""

    def __init__(self, calls: Calls, settings: TelegramSettings) -> None:
        self._calls = calls
        self._settings = settings
        self._grace = min(_GRACE, settings.patience)
        self._next: int | None = None
        self._told: int | None = None

    async def begin(self) -> None:
        """Say what we want to hear of: of some kinds Telegram keeps nothing until somebody has asked for them."""
        await self._ask(timedelta(0), limit=1)

    async def batch(self) -> Sequence[Update]:
        """Return what has arrived, as soon as there is something; asking for it tells Telegram what was confirmed."""
        while not (updates := await self._ask(self._settings.poll)):
            pass
        for _ in range(_MOST_LOOKS):
            if not album_of(updates[-1]):
                break
            await asyncio.sleep(self._settings.album_pause.total_seconds())
            known, updates = updates, await self._ask(timedelta(0))
            if len(updates) <= len(known):
                break
        return updates

    def confirm(self, update_id: int) -> None:
        """Note that everything up to this one was taken."""
        self._next = update_id + 1

    async def part(self) -> None:
        """Tell Telegram what was taken, if that takes no time; otherwise it comes again and is recognised."""
        if self._next != self._told:
            with suppress(PlatformError):
                await self._ask(timedelta(0), limit=1, patience=_PARTING)

    async def _ask(self, wait: timedelta, *, limit: int = 100, patience: timedelta | None = None) -> Sequence[Update]:
        offset = self._next
        call = self._calls.bot.get_updates(
            offset=offset,
            limit=limit,
            timeout=int(wait.total_seconds()),
            read_timeout=self._grace.total_seconds(),
            allowed_updates=ALLOWED_UPDATES,
        )
        updates = await self._calls.ask(call, patience or wait + self._grace)
        self._told = offset
        return updates

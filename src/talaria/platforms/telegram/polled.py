"""What people do, as polling brings it: several things at once."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from talaria.contracts.platform import Handfuls, Incoming
from talaria.platforms.telegram.incoming import Account, Arrival, read_updates
from talaria.platforms.telegram.polling import Polling
from talaria.platforms.telegram.recalling import Recent


class Polled(Handfuls):
    """What was handed out is confirmed when more is asked for; ``acknowledge`` lets a button stop turning."""

    def __init__(
        self, polling: Polling, account: Account, recent: Recent, acknowledge: Callable[[Arrival], Awaitable[None]]
    ) -> None:
        self._polling = polling
        self._account = account
        self._recent = recent
        self._acknowledge = acknowledge
        self._waiting: deque[Arrival] = deque()
        self._handed: list[Arrival] = []

    async def __anext__(self) -> Incoming:
        self._confirm()
        while (incoming := self._next(edits=True)) is None:
            self._confirm()
            self._waiting.extend(read_updates(await self._polling.batch(), self._account))
            await asyncio.gather(*map(self._acknowledge, self._waiting))
        return incoming

    def at_hand(self, most: int) -> Sequence[Incoming]:
        """Return what else the last poll has brought, up to an edit: whether that is news shows behind the rest."""
        found: list[Incoming] = []
        while len(found) < most and (incoming := self._next(edits=False)) is not None:
            found.append(incoming)
        return found

    def _next(self, *, edits: bool) -> Incoming | None:
        while self._waiting:
            following = self._waiting[0].incoming
            if following is not None and following.edited and not edits:
                return None
            self._handed.append(self._waiting.popleft())
            if following is not None and self._recent.is_news(following):
                return following
        return None

    def _confirm(self) -> None:
        for arrival in self._handed:
            if arrival.incoming is not None:
                self._recent.add(arrival.incoming)
            self._polling.confirm(arrival.last_update)
        self._handed.clear()

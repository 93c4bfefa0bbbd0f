"""Follow a run from any point: its events are read from the store page by page, by as many as like to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from talaria.api.runs.events import stream_of
from talaria.api.runs.keeping import is_over
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.events import Event

_PAGE = 200


class Audience:
    """All who follow runs at one server: when that ends they are sent away, and go on elsewhere or later."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.is_dismissed = False
        self._rungs: set[asyncio.Event] = set()

    def follow(self, run_id: str, after: int = 0) -> "Following":
        """Return the events of a run behind this number."""
        return Following(self, run_id, after)

    def dismiss(self) -> None:
        """Send everybody away."""
        self.is_dismissed = True
        for rung in self._rungs:
            rung.set()

    def join(self, rung: asyncio.Event) -> None:
        """Let an event be set when all are sent away."""
        self._rungs.add(rung)

    def part(self, rung: asyncio.Event) -> None:
        """Leave the event alone from now on."""
        self._rungs.discard(rung)


class Following:
    """Yields the events of a run behind ``after``, as many at once as there are, and ends with the run.

    What a slow reader has not fetched stays in the store.
    """

    def __init__(self, audience: Audience, run_id: str, after: int) -> None:
        self._audience = audience
        self._run_id = run_id
        self._after = after
        self._stack = AsyncExitStack()
        self.is_over = False

    async def __aiter__(self) -> AsyncIterator[list[Event]]:
        store = self._audience.store
        rung = await self._stack.enter_async_context(store.heeding(stream_of(self._run_id)))
        self._audience.join(rung)
        self._stack.callback(self._audience.part, rung)
        while True:
            rung.clear()
            if self._audience.is_dismissed:
                return
            page, over = await store.read(self._page)
            if page:
                self._after = page[-1].seq
                yield page
            elif over:
                self.is_over = True
                return
            else:
                await rung.wait()

    async def close(self) -> None:
        """Stop listening."""
        await self._stack.aclose()

    def _page(self, tx: Transaction) -> tuple[list[Event], bool]:
        return tx.events.after(stream_of(self._run_id), self._after, _PAGE), is_over(tx.runs.get(self._run_id))

"""Follow a run from any point: its events are read from the store page by page, by as many as like to."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from talaria.api.runs.events import stream_of
from talaria.api.runs.keeping import is_over
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.events import Event

_PAGE = 200


class Following:
    """Yields the events of a run behind ``after``, those to come included, and ends with the run.

    What a slow reader has not fetched stays in the store.
    """

    def __init__(self, store: Store, run_id: str, after: int = 0) -> None:
        self._store = store
        self._run_id = run_id
        self._after = after
        self._stack = AsyncExitStack()

    async def __aiter__(self) -> AsyncIterator[Event]:
        rung = await self._stack.enter_async_context(self._store.heeding(stream_of(self._run_id)))
        while True:
            rung.clear()
            page, over = await self._store.read(self._page)
            for event in page:
                self._after = event.seq
                yield event
            if over and not page:
                return
            if not page:
                await rung.wait()

    async def close(self) -> None:
        """Stop listening."""
        await self._stack.aclose()

    def _page(self, tx: Transaction) -> tuple[list[Event], bool]:
        return tx.events.after(stream_of(self._run_id), self._after, _PAGE), is_over(tx.runs.get(self._run_id))

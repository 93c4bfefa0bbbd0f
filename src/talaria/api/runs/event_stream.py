"""Follow a run from any point: any number of readers page through its stored events."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from talaria.api.runs.events import make_stream_name
from talaria.api.runs.run_store import is_over
from talaria.contracts.store import Store, Subscription, Transaction
from talaria.contracts.stores.events import StreamEvent

_PAGE = 200


class RunEventStreams:
    """All followers of runs on one server; at shutdown they are disconnected and can resume elsewhere."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.is_shut_down = False
        self._waiters: set[Subscription] = set()

    def follow(self, run_id: str, after: int = 0) -> "RunEventStream":
        """Return the events of a run after this number."""
        return RunEventStream(self, run_id, after)

    def dismiss(self) -> None:
        """Disconnect all followers."""
        self.is_shut_down = True
        for subscription in self._waiters:
            subscription.wake()

    def join(self, subscription: Subscription) -> None:
        """Wake a subscription when all are disconnected."""
        self._waiters.add(subscription)

    def part(self, subscription: Subscription) -> None:
        """Remove a subscription."""
        self._waiters.discard(subscription)


class RunEventStream:
    """The events of a run after ``after``, in batches, until the run ends.

    Events that a slow reader has not fetched stay in the store.
    """

    def __init__(self, streams: RunEventStreams, run_id: str, after: int) -> None:
        self._streams = streams
        self._run_id = run_id
        self._after = after
        self._stack = AsyncExitStack()
        self.is_over = False

    async def __aiter__(self) -> AsyncIterator[list[StreamEvent]]:
        store = self._streams.store
        subscription = await self._stack.enter_async_context(store.subscribe(make_stream_name(self._run_id)))
        self._streams.join(subscription)
        self._stack.callback(self._streams.part, subscription)
        await subscription.wait()
        while True:
            if self._streams.is_shut_down:
                return
            page, run_is_over = await store.read(self._read_page)
            if page:
                self._after = page[-1].seq
                yield page
            elif run_is_over:
                self.is_over = True
                return
            else:
                await subscription.wait()

    async def close(self) -> None:
        """Stop listening."""
        await self._stack.aclose()

    def _read_page(self, tx: Transaction) -> tuple[list[StreamEvent], bool]:
        return tx.events.after(make_stream_name(self._run_id), self._after, _PAGE), is_over(tx.runs.get(self._run_id))

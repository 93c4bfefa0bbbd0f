"""Delivery of one network's outbox: in order per address, different addresses in parallel, nothing dropped."""

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.platform import Platform
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.queues import OutboxFilter, OutboxItem
from talaria.core.aio import shield_until_done
from talaria.core.errors import BadCredentials, Rejected, SlowDown, StoreError, Unreachable
from talaria.core.session_context import SessionContext, bound
from talaria.gateway.outbound.message_writer import (
    POSTED_MESSAGES,
    DeliveryContext,
    DeliveryPolicy,
    MessageWriter,
    PostedMessages,
    RateLimited,
    Throttle,
)
from talaria.runtime.outbox import outbox_topic
from talaria.settings.model import LiveSettings, Settings

T = TypeVar("T")
DEFAULT_POLICY = DeliveryPolicy()
_STORE_PAUSE = 1.0
_RECORD_SECONDS = 15.0

log = logging.getLogger(__name__)


class DeliveryStatus(Struct, frozen=True, kw_only=True):
    """Status of the delivery of a network.

    ``repeated`` counts messages that may have been sent twice, because a worker died while sending them.
    """

    state: Literal["serving", "held", "refused"] = "serving"
    under_way: int = 0
    sent: int = 0
    retried: int = 0
    failed: int = 0
    repeated: int = 0
    error: str = ""


class Delivery:
    """Delivery worker for the outbox of one platform, within the rate limits of ``throttle``.

    Texts longer than the settings allow are cut; the whole text is stored below the folder ``files``.
    """

    def __init__(
        self,
        store: Store,
        platform: Platform,
        *,
        pace: DeliveryPolicy = DEFAULT_POLICY,
        clock: Clock | None = None,
        settings: LiveSettings | None = None,
        files: Path | None = None,
    ) -> None:
        self.throttle = Throttle(platform.abilities.rates)
        self._store = store
        self._platform = platform
        self._policy = pace
        self._clock = clock or SystemClock()
        self._context = DeliveryContext(
            store=store,
            platform=platform,
            throttle=self.throttle,
            pace=pace,
            settings=settings or LiveSettings(Settings()),
            files=files,
            waits=self.wake,
        )
        self._wake_event = asyncio.Event()
        self._in_flight: dict[int, MessageWriter] = {}
        self._next_due: datetime | None = None
        self._has_more = False
        self._refused = False
        self._counts: dict[str, int] = {}
        self._error = ""

    @property
    def status(self) -> DeliveryStatus:
        """The current status."""
        state: Literal["serving", "held", "refused"] = "held" if self.throttle.shut_for else "serving"
        return DeliveryStatus(
            state="refused" if self._refused else state,
            under_way=len(self._in_flight),
            error=self._error,
            **self._counts,
        )

    def wake(self) -> None:
        """Check the outbox at once, because something was queued."""
        self._wake_event.set()

    def resume(self) -> None:
        """Deliver again after a reconnect.

        A pause after refused credentials ends; a pause that the network asked for continues.
        """
        if self._refused:
            self._refused = False
            self.throttle.open()
        self.wake()

    async def is_idle(self) -> bool:
        """Return whether nothing is pending or being sent."""
        return not self._in_flight and not await self._store.read(self._has_undelivered)

    async def serve(self) -> None:
        """Deliver until cancelled; calls in progress then get a grace period to finish."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch_outbox())
            while True:
                self._wake_event.clear()
                for item, posted in await self._claim_due():
                    writer = MessageWriter(self._context, item, posted)
                    self._in_flight[item.id] = writer
                    group.create_task(self._deliver_shielded(item, writer))
                await self._pause()

    async def _watch_outbox(self) -> None:
        """Wake on notifications of new messages for this network; the periodic check reads before it writes."""
        async with self._store.subscribe(outbox_topic(self._platform.name)) as subscription:
            while True:
                notified = await subscription.wait()
                try:
                    if notified or await self._store.read(self._has_undelivered):
                        self.wake()
                except StoreError as error:
                    log.debug("%s: the outbox will be checked later: %s", self._platform.name, error)

    def _has_undelivered(self, tx: Transaction) -> bool:
        return bool(tx.outbox.find(OutboxFilter(platform=self._platform.name, limit=1)))

    async def _pause(self) -> None:
        """Wait until woken, until something is due, or until the next periodic check."""
        shut = self.throttle.shut_for
        seconds = shut or self._policy.poll.total_seconds()
        if self._next_due is not None and not shut:
            left = (self._next_due - self._clock.now()).total_seconds()
            seconds = min(seconds, max(left, 0.01))
        if self._has_more and self._count_free_slots() > 0:
            seconds = min(seconds, max(self.throttle.network_delay, 0.01))
        try:
            async with asyncio.timeout(seconds):
                await self._wake_event.wait()
        except TimeoutError:
            pass
        self._refused = self._refused and self.throttle.shut_for > 0

    async def _claim_due(self) -> list[tuple[OutboxItem, PostedMessages | None]]:
        """Mark due items as being sent and return them, each with its messages posted so far."""
        free = min(self._count_free_slots(), self.throttle.free)
        if free <= 0:
            self._has_more = True
            return []
        if self._next_due is not None and self._next_due <= self._clock.now():
            self._next_due = None

        def work(tx: Transaction) -> list[tuple[OutboxItem, PostedMessages | None]]:
            items = tx.outbox.claim(self._platform.name, self._policy.claim, free)
            return [(item, POSTED_MESSAGES.get(tx, item.session_id, item.key)) for item in items]

        try:
            claimed = await shield_until_done(self._store.write(work), undo=self._unclaim)
            self._has_more = len(claimed) == free
            return claimed
        except StoreError as error:
            if self._error != str(error):
                log.warning("%s: can't check the outbox: %s", self._platform.name, error)
            self._error = str(error)
            return []

    def _count_free_slots(self) -> int:
        """Return how many more items may be claimed; items waiting for a chat's rate limit do not block others."""
        calling = sum(not writer.is_waiting for writer in self._in_flight.values())
        return min(self._policy.at_once - calling, self._policy.at_hand - len(self._in_flight))

    async def _unclaim(self, claimed: list[tuple[OutboxItem, PostedMessages | None]]) -> None:
        now = self._clock.now()
        await self._store.write(lambda tx: [tx.outbox.retry(item.id, now, item.error) for item, _ in claimed])

    async def _deliver_shielded(self, item: OutboxItem, writer: MessageWriter) -> None:
        """Deliver one item; on cancellation let it finish within the grace period, so that its state is known."""
        with bound(SessionContext(session_id=item.session_id or "", platform=self._platform.name)):
            delivering = asyncio.ensure_future(self._deliver(item, writer))
        try:
            check_again = await asyncio.shield(delivering)
        except asyncio.CancelledError:
            writer.request_stop()
            await asyncio.wait([delivering], timeout=self._policy.grace.total_seconds())
            if writer.is_written:  # without a record it would be sent again
                await asyncio.wait([delivering], timeout=_RECORD_SECONDS)
            delivering.cancel()
            await asyncio.wait([delivering])
            raise
        finally:
            del self._in_flight[item.id]
        if check_again:
            self.wake()

    async def _deliver(self, item: OutboxItem, writer: MessageWriter) -> bool:
        """Deliver one item; return whether the outbox has more, or the item has to wait."""
        try:
            reference = await writer.post_pieces()
        except RateLimited as error:  # of refused credentials, `resume` ends the pause
            await self._put_back(item, timedelta(0) if self._refused else error.delay)
        except SlowDown as error:
            self.throttle.slow_down(item.address, error)
            await self._try_later(item, error.retry_after, str(error))
        except Rejected as error:
            await self._give_up(item, str(error))
        except msgspec.DecodeError as error:
            await self._give_up(item, f"it can't be read: {error}")
        except BadCredentials as error:
            self._refused = True
            self.throttle.shut(self._policy.longest_pause)
            await self._try_later(item, timedelta(0), str(error))
        except (Unreachable, StoreError) as error:
            await self._try_later(item, self._policy.pause(item.attempts), str(error))
        except Exception as error:  # a bug in an adapter delays one message, not the others
            log.exception("%s: couldn't deliver a message", self._platform.name)
            await self._try_later(item, self._policy.pause(item.attempts), f"{type(error).__name__}: {error}")
        else:
            has_more = await self._write_with_retry(lambda tx: self._record_sent(tx, item, reference, writer))
            self._count("sent")
            self._count("repeated", int(writer.repeated))
            self._error = ""
            return has_more
        return True

    def _record_sent(self, tx: Transaction, item: OutboxItem, reference: str, writer: MessageWriter) -> bool:
        """Record that an item was sent, and return whether others are left; later ones notify by themselves."""
        if tx.outbox.mark_sent(item.id, reference) and writer.has_record:
            POSTED_MESSAGES.delete(tx, item.session_id, item.key)
        if writer.repeated:
            tx.events.append(f"delivery:{self._platform.name}", [("repeated", item.key)])
        return self._has_undelivered(tx)

    async def _try_later(self, item: OutboxItem, pause: timedelta, error: str) -> None:
        log.warning("%s: %s waits %s: %s", self._platform.name, item.key, pause, error)
        await self._put_back(item, pause, error)
        self._count("retried")
        self._error = error

    async def _put_back(self, item: OutboxItem, pause: timedelta, error: str = "") -> None:
        due = self._clock.now() + pause
        await self._write_with_retry(lambda tx: tx.outbox.retry(item.id, due, error))
        self._next_due = min(self._next_due or due, due)

    async def _give_up(self, item: OutboxItem, error: str) -> None:
        log.error("%s: giving up on message %s: %s", self._platform.name, item.key, error)
        await self._write_with_retry(lambda tx: tx.outbox.fail(item.id, error))
        self._count("failed")
        self._error = error

    async def _write_with_retry(self, work: Callable[[Transaction], T]) -> T:
        """Record the result of a delivery, retrying until the store accepts it, so that it is not repeated."""
        while True:
            try:
                return await self._store.write(work)
            except StoreError as error:
                if self._error != str(error):
                    log.warning("%s: couldn't record a delivery: %s", self._platform.name, error)
                self._error = str(error)
                await asyncio.sleep(_STORE_PAUSE)

    def _count(self, counter: str, number: int = 1) -> None:
        self._counts[counter] = self._counts.get(counter, 0) + number

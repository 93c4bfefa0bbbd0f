"""Delivery of one network's outbox: each address in order, different addresses in parallel, nothing dropped."""

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
from talaria.contracts.stores.outbox import OutboxFilter, OutboxItem
from talaria.core.errors import BadCredentials, Rejected, SlowDown, StoreError, Unreachable
from talaria.core.session_context import SessionContext, bound
from talaria.gateway.long_reply import REPLY_LIMIT
from talaria.gateway.pacing import Pace
from talaria.gateway.placing import Outlet, Placing, TooSoon
from talaria.gateway.shown import Shown, forget_shown, read_shown
from talaria.gateway.throttle import Throttle
from talaria.sessions.outgoing import OUTBOX
from talaria.sessions.unbroken import unbroken

T = TypeVar("T")
DEFAULT_PACE = Pace()
_STORE_PAUSE = 1.0
_RECORD_SECONDS = 15.0

log = logging.getLogger(__name__)


class DeliveryStatus(Struct, frozen=True, kw_only=True):
    """How the delivery of a network is doing. ``repeated`` may have gone out twice, as a sender died meanwhile."""

    state: Literal["serving", "held", "refused"] = "serving"
    under_way: int = 0
    sent: int = 0
    retried: int = 0
    failed: int = 0
    repeated: int = 0
    error: str = ""


class Delivery:
    """Delivers the outbox of one platform, as fast as ``throttle`` allows.

    What is longer than ``reply_limit`` characters is cut, and kept whole below the folder ``files``.
    """

    def __init__(
        self,
        store: Store,
        platform: Platform,
        *,
        pace: Pace = DEFAULT_PACE,
        clock: Clock | None = None,
        reply_limit: Callable[[], int] = lambda: REPLY_LIMIT,
        files: Path | None = None,
    ) -> None:
        self.throttle = Throttle(platform.abilities.rates)
        self._store = store
        self._platform = platform
        self._pace = pace
        self._clock = clock or SystemClock()
        self._outlet = Outlet(
            store=store,
            platform=platform,
            throttle=self.throttle,
            pace=pace,
            reply_limit=reply_limit,
            files=files,
            waits=self.wake,
        )
        self._woken = asyncio.Event()
        self._under_way: dict[int, Placing] = {}
        self._due: datetime | None = None
        self._has_more = False
        self._refused = False
        self._counts: dict[str, int] = {}
        self._error = ""

    @property
    def status(self) -> DeliveryStatus:
        """How it is doing."""
        state: Literal["serving", "held", "refused"] = "held" if self.throttle.shut_for else "serving"
        return DeliveryStatus(
            state="refused" if self._refused else state,
            under_way=len(self._under_way),
            error=self._error,
            **self._counts,
        )

    def wake(self) -> None:
        """Look at the outbox at once; something was put in."""
        self._woken.set()

    def resume(self) -> None:
        """Try again: the network is back. A pause that it asked for goes on, one for an account it refused does not."""
        if self._refused:
            self._refused = False
            self.throttle.open()
        self.wake()

    async def is_idle(self) -> bool:
        """Tell whether nothing waits and nothing is under way."""
        return not self._under_way and not await self._store.read(self._undelivered)

    async def serve(self) -> None:
        """Deliver until cancelled; calls that are under way then are ended in good order, if they end soon."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._heed())
            while True:
                self._woken.clear()
                for item, shown in await self._claimed():
                    placing = Placing(self._outlet, item, shown)
                    self._under_way[item.id] = placing
                    group.create_task(self._see_through(item, placing))
                await self._pause()

    async def _heed(self) -> None:
        """Look at the outbox when somebody else has put something in, such as a tool or another process."""
        async with self._store.heeding(OUTBOX) as rung:
            while True:
                await rung.wait()
                rung.clear()
                try:
                    if await self._store.read(self._undelivered):
                        self.wake()
                except StoreError as error:
                    log.debug("%s: the outbox is looked at later: %s", self._platform.name, error)

    def _undelivered(self, tx: Transaction) -> bool:
        return bool(tx.outbox.find(OutboxFilter(platform=self._platform.name, limit=1)))

    async def _pause(self) -> None:
        """Wait until woken, or until something is due, or for the next look."""
        shut = self.throttle.shut_for
        seconds = shut or self._pace.poll.total_seconds()
        if self._due is not None and not shut:
            left = (self._due - self._clock.now()).total_seconds()
            seconds = min(seconds, max(left, 0.01))
        if self._has_more and self._room() > 0:
            seconds = min(seconds, max(self.throttle.network_delay, 0.01))
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            pass
        self._refused = self._refused and self.throttle.shut_for > 0

    async def _claimed(self) -> list[tuple[OutboxItem, Shown | None]]:
        """Mark what is due as being sent and return it, each with the messages that show it already."""
        free = min(self._room(), self.throttle.free)
        if free <= 0:
            self._has_more = True
            return []
        if self._due is not None and self._due <= self._clock.now():
            self._due = None

        def work(tx: Transaction) -> list[tuple[OutboxItem, Shown | None]]:
            items = tx.outbox.claim(self._platform.name, self._pace.claim, free)
            return [(item, read_shown(tx, item.key)) for item in items]

        try:
            claimed = await unbroken(self._store.write(work), undo=self._give_back)
            self._has_more = len(claimed) == free
            return claimed
        except StoreError as error:
            if self._error != str(error):
                log.warning("%s: the outbox is not looked at: %s", self._platform.name, error)
            self._error = str(error)
            return []

    def _room(self) -> int:
        """Return how many more may be claimed: what waits for the rate of its own chat holds up no other."""
        calling = sum(not placing.is_waiting for placing in self._under_way.values())
        return min(self._pace.at_once - calling, self._pace.at_hand - len(self._under_way))

    async def _give_back(self, claimed: list[tuple[OutboxItem, Shown | None]]) -> None:
        now = self._clock.now()
        await self._store.write(lambda tx: [tx.outbox.retry(item.id, now, item.error) for item, _ in claimed])

    async def _see_through(self, item: OutboxItem, placing: Placing) -> None:
        """Deliver one item; when everything stops, let it end first, so that nobody has to doubt whether it went."""
        with bound(SessionContext(session_id=item.session_id or "", platform=self._platform.name)):
            delivering = asyncio.ensure_future(self._deliver(item, placing))
        try:
            await asyncio.shield(delivering)
        except asyncio.CancelledError:
            placing.halted = True
            await asyncio.wait([delivering], timeout=self._pace.grace.total_seconds())
            if placing.is_placed:  # what is there and not recorded would be sent again
                await asyncio.wait([delivering], timeout=_RECORD_SECONDS)
            delivering.cancel()
            await asyncio.wait([delivering])
            raise
        finally:
            del self._under_way[item.id]
            self.wake()

    async def _deliver(self, item: OutboxItem, placing: Placing) -> None:
        try:
            reference = await placing.place()
        except TooSoon as error:
            await self._put_back(item, error.delay)
        except SlowDown as error:
            self.throttle.slow_down(item.address, error)
            await self._try_later(item, error.retry_after, str(error))
        except Rejected as error:
            await self._give_up(item, str(error))
        except msgspec.DecodeError as error:
            await self._give_up(item, f"it cannot be read: {error}")
        except BadCredentials as error:
            self._refused = True
            self.throttle.shut(self._pace.longest_pause)
            await self._try_later(item, timedelta(0), str(error))
        except (Unreachable, StoreError) as error:
            await self._try_later(item, self._pace.pause(item.attempts), str(error))
        except Exception as error:  # a bug in an adapter holds up one message, for a while, and no other
            log.exception("%s: a message was not delivered", self._platform.name)
            await self._try_later(item, self._pace.pause(item.attempts), f"{type(error).__name__}: {error}")
        else:
            await self._settle(lambda tx: self._sent(tx, item, reference, repeated=placing.repeated))
            self._count("sent")
            self._count("repeated", int(placing.repeated))
            self._error = ""

    def _sent(self, tx: Transaction, item: OutboxItem, reference: str, *, repeated: bool) -> None:
        if tx.outbox.sent(item.id, reference):
            forget_shown(tx, item.key)
        if repeated:
            tx.events.append(f"delivery:{self._platform.name}", [("repeated", item.key)])

    async def _try_later(self, item: OutboxItem, pause: timedelta, error: str) -> None:
        log.warning("%s: %s waits %s: %s", self._platform.name, item.key, pause, error)
        await self._put_back(item, pause, error)
        self._count("retried")
        self._error = error

    async def _put_back(self, item: OutboxItem, pause: timedelta, error: str = "") -> None:
        due = self._clock.now() + pause
        await self._settle(lambda tx: tx.outbox.retry(item.id, due, error))
        self._due = min(self._due or due, due)

    async def _give_up(self, item: OutboxItem, error: str) -> None:
        log.error("%s: %s cannot be delivered: %s", self._platform.name, item.key, error)
        await self._settle(lambda tx: tx.outbox.fail(item.id, error))
        self._count("failed")
        self._error = error

    async def _settle(self, work: Callable[[Transaction], T]) -> T:
        """Record what became of an item, however long the store needs to be there: it must not go out again."""
        while True:
            try:
                return await self._store.write(work)
            except StoreError as error:
                if self._error != str(error):
                    log.warning("%s: a delivery is not recorded: %s", self._platform.name, error)
                self._error = str(error)
                await asyncio.sleep(_STORE_PAUSE)

    def _count(self, what: str, number: int = 1) -> None:
        self._counts[what] = self._counts.get(what, 0) + number

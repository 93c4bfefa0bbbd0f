"""One network at work: received from, tried again when that fails, and never in the way of the others."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from talaria.contracts.platform import Content, Handfuls, Incoming, Platform
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.leases import Lease
from talaria.core.addresses import Address
from talaria.core.errors import BadCredentials, LeaseLost, PlatformError, StoreError, TalariaError
from talaria.core.ids import new_id
from talaria.gateway.outage_notices import OutageNotices
from talaria.sessions.company import accompanied
from talaria.sessions.holding import hold, let_go, take
from talaria.sessions.insisting import HELD_UP
from talaria.sessions.loop_timer import sleep_while_running
from talaria.sessions.presence import NetworkState, NetworkStatus

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
_STEADY = 60.0
_TELL_SECONDS = 30.0
_STORE_PAUSE = 1.0
_AT_HAND = 63
_AT_ONCE, _PATIENCE = 0.5, 5.0

log = logging.getLogger(__name__)


class Network:
    """Keeps one platform connected. ``take`` keeps what arrives and returns what a stranger is to be told.

    ``connected`` is called each time that it is there again. ``meanwhile`` returns what to answer at once to something
    for which the store takes its time.
    """

    def __init__(
        self,
        platform: Platform,
        store: Store,
        take: Callable[[Incoming], Coroutine[Any, Any, str]],
        *,
        lease: timedelta,
        connected: Callable[[], None] = lambda: None,
        meanwhile: Callable[[Incoming], str] = lambda _: "",
        outage: OutageNotices | None = None,
    ) -> None:
        self.platform = platform
        self._outage = outage or OutageNotices()
        self._connected = connected
        self._meanwhile = meanwhile
        self._store = store
        self._take = take
        self._lease = lease
        self._state: NetworkState = "connecting"
        self._since = datetime.now(UTC)
        self._error = ""
        self._received = 0
        self._last: datetime | None = None

    @property
    def status(self) -> NetworkStatus:
        """How it is doing."""
        return NetworkStatus(
            name=self.platform.name,
            state=self._state,
            since=self._since,
            error=self._error,
            received=self._received,
            last_received=self._last,
        )

    async def serve(self) -> None:
        """Connect and receive until cancelled; after a failure wait, longer each time, and connect again."""
        pause = _FIRST_PAUSE
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._hold_and_receive()
            except BadCredentials as error:
                self._enter("refused", str(error))
            except StoreError as error:
                self._enter("waiting", str(error))
                pause = _FIRST_PAUSE
            except PlatformError as error:
                self._enter("waiting", str(error))
            except Exception as error:  # a bug in an adapter takes down its network, for a while, and no other
                log.exception("%s: the connection failed", self.platform.name)
                self._enter("waiting", f"{type(error).__name__}: {error}")
            if asyncio.get_running_loop().time() - began > _STEADY:
                pause = _FIRST_PAUSE
            log.warning("%s: %s; trying again in %.0f s", self.platform.name, self._error or "it ended", pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _hold_and_receive(self) -> None:
        """Receive; where a network lets one receive at a time, only while this worker is the one."""
        if not self.platform.abilities.exclusive:
            await self._receive()
            return
        lease = await self._acquire()
        try:
            await accompanied(self._receive(), hold(self._store, lease, self._lease))
        except LeaseLost as error:
            self._enter("elsewhere", str(error))
        finally:
            await asyncio.shield(let_go(self._store, lease))

    async def _acquire(self) -> Lease:
        while (lease := await self._store.write(self._claim)) is None:
            self._enter("elsewhere", "")
            await asyncio.sleep(self._lease.total_seconds() / 4)
        return lease

    def _claim(self, tx: Transaction) -> Lease | None:
        """Take what is free, or what somebody held who was killed: nobody is to be unheard until that lapses."""
        return take(tx, f"platform:{self.platform.name}", self._lease)

    async def _receive(self) -> None:
        self._enter("connecting", "")
        async with self.platform.connect() as arriving:
            self._enter("connected", "")
            self._connected()
            async for incoming in arriving:
                more = arriving.at_hand(_AT_HAND) if isinstance(arriving, Handfuls) else ()
                await self._keep_all([incoming, *more])

    async def _keep_all(self, arrived: Sequence[Incoming]) -> None:
        """Take in what arrived together: what people did in one place in its order, different places side by side."""
        moved = any(incoming.formerly for incoming in arrived)
        places: dict[Address | None, list[Incoming]] = {}
        for incoming in arrived:
            places.setdefault(None if moved else incoming.address, []).append(incoming)
        if len(places) == 1:
            await self._keep_in_order(arrived)
            return
        async with asyncio.TaskGroup() as group:
            for line in places.values():
                group.create_task(self._keep_in_order(line))

    async def _keep_in_order(self, arrived: Sequence[Incoming]) -> None:
        for incoming in arrived:
            await self._keep(incoming)
            self._received += 1
            self._last = datetime.now(UTC)

    async def _keep(self, incoming: Incoming) -> None:
        """Take something in, however long the store needs to be there: the network is told no sooner."""
        words = await accompanied(self._taken(incoming), self._console(incoming))
        self._error = ""
        self._outage.end()
        if words:
            await self._tell(incoming, words)

    async def _taken(self, incoming: Incoming) -> str:
        while True:
            try:
                return await self._take(incoming)
            except StoreError as error:
                if self._error != str(error):
                    log.warning("%s: a message waits for the store: %s", self.platform.name, error)
                self._error = str(error)
                await asyncio.sleep(_STORE_PAUSE)
            except Exception:  # a bug costs the message that it meets, and the sender is told; others are heard
                log.exception("%s: the message %s was not understood", self.platform.name, incoming.external_id)
                return TalariaError.public

    async def _console(self, incoming: Incoming) -> None:
        """Answer what cannot wait for the store; tell anybody else after a while that they have to."""
        await asyncio.sleep(_AT_ONCE)
        words = self._meanwhile(incoming)
        if not words and incoming.addressed:
            await sleep_while_running(_PATIENCE)
            words = HELD_UP if self._outage.claim(incoming.address) else ""
        log.warning("%s: the store cannot be used; a message waits", self.platform.name)
        if words:
            await self._tell(incoming, words)

    async def _tell(self, incoming: Incoming, words: str) -> None:
        """Answer somebody who is in no conversation."""
        try:
            async with asyncio.timeout(_TELL_SECONDS):
                await self.platform.send(incoming.address, Content(text=words), new_id())
        except (PlatformError, TimeoutError) as error:
            log.warning("%s: a stranger was not answered: %s", self.platform.name, error)

    def _enter(self, state: NetworkState, error: str) -> None:
        if state != self._state:
            self._since = datetime.now(UTC)
            log.info("%s: %s", self.platform.name, state)
        self._state, self._error = state, error

"""Receiver of one network: stays connected and passes every update to the dispatcher; and the sync of listed chats."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from talaria.contracts.platform import BatchedUpdates, Content, Incoming, KnownChat, ListingPlatform, Platform
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.turns import Lease
from talaria.core.addresses import Address
from talaria.core.aio import run_with, sleep_while_running
from talaria.core.errors import BadCredentials, LeaseLost, PlatformError, StoreError, TalariaError
from talaria.core.ids import new_id
from talaria.gateway.outbound.message_writer import call_with_timeout
from talaria.runtime.workers import (
    STORE_UNREACHABLE,
    NetworkState,
    NetworkStatus,
    release_lease,
    renew_lease,
    take_lease,
)
from talaria.sessions.chat_directory import record_channel

_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 300.0
_STABLE_SECONDS = 60.0
_REPLY_SECONDS = 30.0
_STORE_PAUSE = 1.0
_BATCH_SIZE = 63
_OUTAGE_CHECK_SECONDS, _OUTAGE_NOTICE_SECONDS = 0.5, 5.0
_LISTING_INTERVAL = 15.0
_MAX_LISTING_AGE = timedelta(hours=1)
_LISTING_SECONDS = 30.0

log = logging.getLogger(__name__)


class OutageNotices:
    """Chats of one network that were ``notified`` of the current outage."""

    def __init__(self) -> None:
        self.notified: set[tuple[str, str]] = set()

    def claim(self, address: Address) -> bool:
        """Return whether to notify this chat: ``True`` the first time in an outage."""
        chat = (address.chat_id, address.thread_id)
        if chat in self.notified:
            return False
        self.notified.add(chat)
        return True

    def end(self) -> None:
        """End the outage, because the store has accepted a write."""
        self.notified.clear()


class Receiver:
    """Connection to one platform.

    ``take`` stores an update and returns the reply to a refused sender, if any. ``connected`` is called after each
    connect. ``reply_during_outage`` returns the reply to an update that cannot wait for the store, empty if it can.
    """

    def __init__(
        self,
        platform: Platform,
        store: Store,
        take: Callable[[Incoming], Coroutine[Any, Any, str]],
        *,
        lease: timedelta,
        connected: Callable[[], None] = lambda: None,
        reply_during_outage: Callable[[Incoming], str] = lambda _: "",
        outage: OutageNotices | None = None,
    ) -> None:
        self.platform = platform
        self._outage = outage or OutageNotices()
        self._on_connected = connected
        self._reply_during_outage = reply_during_outage
        self._store = store
        self._admit = take
        self._lease = lease
        self._state: NetworkState = "connecting"
        self._since = datetime.now(UTC)
        self._error = ""
        self._received = 0
        self._last: datetime | None = None

    @property
    def status(self) -> NetworkStatus:
        """The state of the connection."""
        return NetworkStatus(
            name=self.platform.name,
            state=self._state,
            since=self._since,
            error=self._error,
            received=self._received,
            last_received=self._last,
        )

    async def serve(self) -> None:
        """Connect and receive until cancelled; after a failure, reconnect after a pause that doubles each time."""
        pause = _FIRST_PAUSE
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self._receive_with_lease()
            except BadCredentials as error:
                self._set_state("refused", str(error))
            except StoreError as error:
                self._set_state("waiting", str(error))
                pause = _FIRST_PAUSE
            except PlatformError as error:
                self._set_state("waiting", str(error))
            except Exception as error:  # a bug in an adapter interrupts its network for a while, not the others
                log.exception("%s: the connection failed", self.platform.name)
                self._set_state("waiting", f"{type(error).__name__}: {error}")
            if asyncio.get_running_loop().time() - began > _STABLE_SECONDS:
                pause = _FIRST_PAUSE
            log.warning("%s: %s; trying again in %.0f s", self.platform.name, self._error or "it ended", pause)
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _receive_with_lease(self) -> None:
        """Receive updates; on networks with one receiver at a time only while this worker holds the lease."""
        if not self.platform.abilities.exclusive:
            await self._receive()
            return
        lease = await self._acquire()
        try:
            await run_with(self._receive(), renew_lease(self._store, lease, self._lease))
        except LeaseLost as error:
            self._set_state("elsewhere", str(error))
        finally:
            await asyncio.shield(release_lease(self._store, lease))

    async def _acquire(self) -> Lease:
        """Wait until the lease is free or its owner was killed."""
        name = f"platform:{self.platform.name}"
        while (lease := await take_lease(self._store, name, self._lease)) is None:
            self._set_state("elsewhere", "")
            await asyncio.sleep(self._lease.total_seconds() / 4)
        return lease

    async def _receive(self) -> None:
        self._set_state("connecting", "")
        async with self.platform.connect() as stream:
            self._set_state("connected", "")
            self._on_connected()
            async for incoming in stream:
                more = stream.at_hand(_BATCH_SIZE) if isinstance(stream, BatchedUpdates) else ()
                await self._admit_batch([incoming, *more])

    async def _admit_batch(self, updates: Sequence[Incoming]) -> None:
        """Admit updates that arrived together: in order within a chat, different chats in parallel."""
        moved = any(incoming.formerly for incoming in updates)
        by_chat: dict[Address | None, list[Incoming]] = {}
        for incoming in updates:
            by_chat.setdefault(None if moved else incoming.address, []).append(incoming)
        if len(by_chat) == 1:
            await self._admit_in_order(updates)
            return
        async with asyncio.TaskGroup() as group:
            for chat_updates in by_chat.values():
                group.create_task(self._admit_in_order(chat_updates))

    async def _admit_in_order(self, updates: Sequence[Incoming]) -> None:
        for incoming in updates:
            await self._admit_one(incoming)
            self._received += 1
            self._last = datetime.now(UTC)

    async def _admit_one(self, incoming: Incoming) -> None:
        """Admit an update, waiting for the store as long as needed; it is acknowledged to the network afterwards."""
        admitting = asyncio.ensure_future(self._admit_with_retry(incoming))
        try:
            await asyncio.wait([admitting], timeout=_OUTAGE_CHECK_SECONDS)
            if admitting.done():
                text = admitting.result()
            else:
                text = await run_with(_wait_for(admitting), self._handle_outage(incoming))
        finally:
            admitting.cancel()
        self._error = ""
        self._outage.end()
        if text:
            await self._reply(incoming, text)

    async def _admit_with_retry(self, incoming: Incoming) -> str:
        while True:
            try:
                return await self._admit(incoming)
            except StoreError as error:
                if self._error != str(error):
                    log.warning("%s: a message is waiting for the store: %s", self.platform.name, error)
                self._error = str(error)
                await asyncio.sleep(_STORE_PAUSE)
            except Exception:  # a bug costs one message, and its sender gets a reply
                log.exception("%s: couldn't process message %s", self.platform.name, incoming.external_id)
                return TalariaError.public

    async def _handle_outage(self, incoming: Incoming) -> None:
        """Reply to what cannot wait for the store; notify other senders of the outage after a while."""
        text = self._reply_during_outage(incoming)
        if not text and incoming.addressed:
            await sleep_while_running(_OUTAGE_NOTICE_SECONDS)
            text = STORE_UNREACHABLE if self._outage.claim(incoming.address) else ""
        log.warning("%s: the store is unavailable; a message is waiting", self.platform.name)
        if text:
            await self._reply(incoming, text)

    async def _reply(self, incoming: Incoming, text: str) -> None:
        """Reply to a sender outside any session."""
        try:
            async with asyncio.timeout(_REPLY_SECONDS):
                await self.platform.send(incoming.address, Content(text=text), new_id())
        except (PlatformError, TimeoutError) as error:
            log.warning("%s: couldn't reply to an unknown sender: %s", self.platform.name, error)

    def _set_state(self, state: NetworkState, error: str) -> None:
        if state != self._state:
            self._since = datetime.now(UTC)
            log.info("%s: %s", self.platform.name, state)
        self._state, self._error = state, error


class DirectorySync:
    """Sync of the chats of a worker's networks, after each connect and every hour."""

    def __init__(self, store: Store, networks: Sequence[Receiver]) -> None:
        self._store = store
        self._networks = [one for one in networks if one.platform.abilities.lists_chats]
        self._listed_at: dict[str, datetime] = {}

    async def serve(self) -> None:
        """List chats when they are due, until cancelled."""
        while self._networks:
            for network in self._networks:
                await self.refresh(network, datetime.now(UTC))
            await asyncio.sleep(_LISTING_INTERVAL)

    async def refresh(self, network: Receiver, now: datetime) -> int:
        """List the chats of a connected network if that is due; return their number."""
        status = network.status
        listed_at = self._listed_at.get(status.name)
        is_new = listed_at is None or (status.since is not None and status.since > listed_at)
        if status.state != "connected" or not (is_new or (listed_at and now - listed_at > _MAX_LISTING_AGE)):
            return 0
        self._listed_at[status.name] = now
        try:
            chats = await call_with_timeout(cast("ListingPlatform", network.platform).chats(), _LISTING_SECONDS)
            await self._store.write(lambda tx: _store_chats(tx, chats, now))
        except TalariaError as error:
            log.info("%s: couldn't list its chats: %s", status.name, error)
            return 0
        return len(chats)


async def _wait_for(admitting: asyncio.Future[str]) -> str:
    return await admitting


def _store_chats(tx: Transaction, chats: Sequence[KnownChat], now: datetime) -> None:
    for chat in chats:
        record_channel(tx, chat.address, chat.name, now)

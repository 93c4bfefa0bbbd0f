"""Receive updates of an account in batches, each confirmed when all of it was taken."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress

from msgspec import structs

from talaria.contracts.platform import Incoming
from talaria.core.errors import PlatformError, Rejected, Unreachable
from talaria.platforms.matrix.account_state import Invitations, ValueStore
from talaria.platforms.matrix.connection import MatrixConnection, RoomChanges, SyncBatch
from talaria.platforms.matrix.events import RoomEvent
from talaria.platforms.matrix.incoming import BotIdentity, read_incoming, related_event, since_invitation
from talaria.platforms.matrix.settings import MatrixSettings

log = logging.getLogger(__name__)

_MOST_PAGES = 20  # of 100 events: bounds what is read of a room after a long absence
_MOST_UNCHANGED = 30
_MARK_SECONDS = 10


class Receiver:
    """Receives events after a position, and saves the position when everything up to it was taken."""

    def __init__(
        self,
        connection: MatrixConnection,
        identity: BotIdentity,
        settings: MatrixSettings,
        position: ValueStore,
        invitations: Invitations,
    ) -> None:
        self._connection = connection
        self._identity = identity
        self._settings = settings
        self._position = position
        self._invitations = invitations
        self._since = ""
        self._unread_marks: dict[str, str] = {}
        self._servers: dict[str, str] = {}
        self._first_batch = SyncBatch("", [], [])

    async def start(self) -> None:
        """Load the position; at the very first start, only later messages are received."""
        await self._invitations.load()
        self._since = await self._load_position()
        if self._since:
            try:
                self._first_batch = await self._connection.sync(self._since, full_state_sync=True)
            except Rejected as error:
                log.warning("%s: the homeserver no longer knows our read position: %s", self._identity.platform, error)
            else:
                return
        batch = await self._connection.sync("", full_state_sync=True)
        await self._invitations.process(batch.invitations, self._connection.join)
        await self._save_position(batch.position)
        self._since, self._first_batch = batch.position, SyncBatch(batch.position, [], [])

    async def updates(self) -> AsyncGenerator[Incoming, None]:
        """Yield updates until the connection fails; raises `Unreachable` without progress."""
        since, batch, unchanged = self._since, self._first_batch, 0
        while True:
            await self._invitations.process(batch.invitations, self._connection.join)
            for room_changes in batch.room_changes:
                for incoming in await self._read(room_changes, since):
                    yield incoming
            if batch.position != since:
                await self._save_position(batch.position)
            await self._mark_read(batch)
            since, began = batch.position, asyncio.get_running_loop().time()
            batch = await self._connection.sync(since, full_state_sync=False)
            waited = asyncio.get_running_loop().time() - began >= self._settings.poll.total_seconds() / 4
            unchanged = 0 if waited or batch.position != since else unchanged + 1
            if unchanged > _MOST_UNCHANGED:
                raise Unreachable("the homeserver keeps answering immediately without making progress")

    async def _load_position(self) -> str:
        """Return the position of this account; one of another account doesn't count."""
        account, _, token = (await self._position.load()).partition(" ")
        return token if account == self._identity.user_id else ""

    async def _save_position(self, token: str) -> None:
        await self._position.save(f"{self._identity.user_id} {token}")

    async def _read(self, room_changes: RoomChanges, since: str) -> list[Incoming]:
        (room,) = self._connection.rooms(room_changes.room_id)
        found = []
        for event in since_invitation(await self._fill_gap(room_changes, since), self._identity):
            related_id = related_event(event, room, self._identity)
            related = await self._connection.event(room_changes.room_id, related_id) if related_id else None
            if (incoming := read_incoming(event, room, self._identity, related)) is not None:
                found.append(structs.replace(incoming, server=await self._find_server(room.room_id)))
        return found

    async def _find_server(self, room_id: str) -> str:
        """Return the homeserver on which a room was created; empty if that is unknown."""
        if room_id not in self._servers:
            server = room_id.partition(":")[2]
            if not server:  # since version 12, the id is that of the event that created the room
                creation = await self._connection.event(room_id, f"${room_id[1:]}")
                server = creation.sender.partition(":")[2] if creation is not None else ""
            self._servers[room_id] = server
        return self._servers[room_id]

    async def _fill_gap(self, room_changes: RoomChanges, since: str) -> list[RoomEvent]:
        """Return the events of a room with those that a sync omitted because there were too many."""
        events, start = room_changes.events, room_changes.gap
        for _ in range(_MOST_PAGES):
            if not start or len(since_invitation(events, self._identity)) < len(events):
                return events
            page, start = await self._connection.events_before(room_changes.room_id, start, since)
            if not page:
                return events
            events = [*reversed(page), *events]
        log.warning(
            "%s: too many messages were missed in %s; the oldest are skipped",
            self._identity.platform,
            room_changes.room_id,
        )
        return events

    async def _mark_read(self, batch: SyncBatch) -> None:
        """Send a read receipt; a failed one is sent again with the next batch."""
        if not self._settings.read_marks:
            return
        self._unread_marks |= {
            room_changes.room_id: room_changes.events[-1].event_id
            for room_changes in batch.room_changes
            if room_changes.events
        }
        try:
            async with asyncio.timeout(_MARK_SECONDS):
                for room_id, event_id in list(self._unread_marks.items()):
                    with suppress(Rejected):  # we may have left the room
                        await self._connection.mark_read(room_id, event_id)
                    del self._unread_marks[room_id]
        except (PlatformError, TimeoutError) as error:
            log.info("%s: couldn't send a read receipt: %s", self._identity.platform, error)

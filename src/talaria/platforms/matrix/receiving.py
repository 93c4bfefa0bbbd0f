"""What arrives at an account: batch after batch, each confirmed when all of it was taken."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress

from talaria.contracts.platform import Incoming
from talaria.core.errors import PlatformError, Rejected, Unreachable
from talaria.platforms.matrix.connection import Batch, Connection, News
from talaria.platforms.matrix.events import RoomEvent
from talaria.platforms.matrix.incoming import Me, read_incoming, related_event, since_invitation
from talaria.platforms.matrix.invitations import Invitations
from talaria.platforms.matrix.keeping import Position
from talaria.platforms.matrix.settings import MatrixSettings

log = logging.getLogger(__name__)

_PAGES = 20  # of 100 events: what a room says while we are away for long is bounded
_STILL = 30
_MARK_SECONDS = 10


class Receiver:
    """Takes what happens after a position, and keeps the position when everything up to it was taken."""

    def __init__(
        self,
        line: Connection,
        me: Me,
        settings: MatrixSettings,
        position: Position,
        invitations: Invitations,
    ) -> None:
        self._line = line
        self._me = me
        self._settings = settings
        self._position = position
        self._invitations = invitations
        self._since = ""
        self._unmarked: dict[str, str] = {}
        self._first = Batch("", [], [])

    async def begin(self) -> None:
        """Find out where we stand: what is said from now on is heard, at the very first time nothing of before."""
        await self._invitations.load()
        self._since = await self._load()
        if self._since:
            try:
                self._first = await self._line.sync(self._since, anew=True)
            except Rejected as error:
                log.warning("%s: the homeserver has forgotten where we were: %s", self._me.platform, error)
            else:
                return
        batch = await self._line.sync("", anew=True)
        await self._invitations.consider(batch.invitations, self._line.join)
        await self._save(batch.position)
        self._since, self._first = batch.position, Batch(batch.position, [], [])

    async def arriving(self) -> AsyncGenerator[Incoming, None]:
        """Yield what people do until the connection fails; raises `Unreachable` where nothing moves any more."""
        since, batch, still = self._since, self._first, 0
        while True:
            await self._invitations.consider(batch.invitations, self._line.join)
            for news in batch.news:
                for incoming in await self._read(news, since):
                    yield incoming
            if batch.position != since:
                await self._save(batch.position)
            await self._mark_read(batch)
            since, began = batch.position, asyncio.get_running_loop().time()
            batch = await self._line.sync(since, anew=False)
            waited = asyncio.get_running_loop().time() - began >= self._settings.poll.total_seconds() / 4
            still = 0 if waited or batch.position != since else still + 1
            if still > _STILL:
                raise Unreachable("the homeserver answers at once, again and again, and nothing moves")

    async def _load(self) -> str:
        """Return the position of this account; one of another account is none."""
        account, _, token = (await self._position.load()).partition(" ")
        return token if account == self._me.user_id else ""

    async def _save(self, token: str) -> None:
        await self._position.save(f"{self._me.user_id} {token}")

    async def _read(self, news: News, since: str) -> list[Incoming]:
        (room,) = self._line.rooms(news.room_id)
        found = []
        for event in since_invitation(await self._without_gap(news, since), self._me):
            wanted = related_event(event, room, self._me)
            related = await self._line.event(news.room_id, wanted) if wanted else None
            found.append(read_incoming(event, room, self._me, related))
        return [incoming for incoming in found if incoming is not None]

    async def _without_gap(self, news: News, since: str) -> list[RoomEvent]:
        """Return the events of a room with those that a sync left out because they were too many."""
        events, start = news.events, news.gap
        for _ in range(_PAGES):
            if not start or len(since_invitation(events, self._me)) < len(events):
                return events
            page, start = await self._line.before(news.room_id, start, since)
            if not page:
                return events
            events = [*reversed(page), *events]
        log.warning("%s: more was said in %s while we were away than is read again", self._me.platform, news.room_id)
        return events

    async def _mark_read(self, batch: Batch) -> None:
        """Show how far we have read; nothing depends on it, and what cannot be shown now is with the next batch."""
        if not self._settings.read_marks:
            return
        self._unmarked |= {news.room_id: news.events[-1].event_id for news in batch.news if news.events}
        try:
            async with asyncio.timeout(_MARK_SECONDS):
                for room_id, event_id in list(self._unmarked.items()):
                    with suppress(Rejected):  # we may have left that room
                        await self._line.mark_read(room_id, event_id)
                    del self._unmarked[room_id]
        except (PlatformError, TimeoutError) as error:
            log.info("%s: how far we have read is not shown yet: %s", self._me.platform, error)

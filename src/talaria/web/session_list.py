"""Changes in the list of conversations, sent to the browsers that show it."""

from datetime import datetime

from talaria.contracts.store import Store, Subscription
from talaria.core.errors import StoreError
from talaria.runtime.live.control import LIVE
from talaria.runtime.turns import PENDING_SESSIONS
from talaria.web.front_door import WebCaller
from talaria.web.hub import BrowserStream, LiveHub
from talaria.web.session_views import PAGE, read_rows
from talaria.web.wire import SessionRow, SessionsMessage

SESSIONS = "sessions"


class SessionListWatcher:
    """Watcher of the newest conversations, for all streams of this process that show the list.

    Notifications of turns make it look at once. Nothing notifies of a title or an end in another process, so it also
    looks once a second while a browser shows the list: two small reads.
    """

    def __init__(self, store: Store, hub: LiveHub) -> None:
        self._store = store
        self._hub = hub
        self._known: dict[str, dict[str, SessionRow]] = {}
        self._subscription: Subscription | None = None

    def check_soon(self) -> None:
        """Look for changes now."""
        if self._subscription is not None:
            self._subscription.wake()

    async def follow(self) -> None:
        """Send changes until cancelled."""
        async with self._store.subscribe(LIVE, PENDING_SESSIONS) as subscription:
            self._subscription = subscription
            while True:
                await subscription.wait()
                streams = [one for one in self._hub.streams if SESSIONS in one.topics]
                people = {one.caller.person for one in streams}
                for person in [one for one in self._known if one not in people]:
                    del self._known[person]
                for person in people:
                    try:
                        await self._check(person, [one for one in streams if one.caller.person == person])
                    except StoreError:
                        continue

    async def _check(self, person: str, streams: list[BrowserStream]) -> None:
        caller = WebCaller(person=person)
        rows = {row.id: row for row in await self._store.read(lambda tx: read_rows(tx, caller))}
        before = self._known.get(person)
        self._known[person] = rows
        if before is None:
            return
        changed = [row for row in rows.values() if before.get(row.id) != row]
        gone = [one for one, row in before.items() if one not in rows and not _is_pushed_out(row.updated_at, rows)]
        if changed or gone:
            for stream in streams:
                stream.send(SessionsMessage(changed, gone))


def _is_pushed_out(updated_at: datetime, rows: dict[str, SessionRow]) -> bool:
    """Return whether a row is missing only because newer ones fill the page."""
    return len(rows) >= PAGE and updated_at <= min(row.updated_at for row in rows.values())

"""Changes in the list of conversations, sent to the browsers that show it."""

from datetime import datetime
from time import monotonic

from talaria.contracts.store import Store, Subscription
from talaria.contracts.stores.sessions import SESSION_CHANGES
from talaria.core.errors import StoreError
from talaria.web.front_door import WebCaller
from talaria.web.hub import BrowserStream, LiveHub
from talaria.web.session_views import PAGE, read_rows
from talaria.web.wire import SessionRow, SessionsMessage

SESSIONS = "sessions"
_CHECK_SECONDS = 20.0  # a notification of another process may be lost


class SessionListWatcher:
    """Watcher of the newest conversations, for all streams of this process that show the list."""

    def __init__(self, store: Store, hub: LiveHub) -> None:
        self._store = store
        self._hub = hub
        self._known: dict[str, dict[str, SessionRow]] = {}
        self._subscription: Subscription | None = None
        self._is_asked = False

    def check_soon(self) -> None:
        """Look for changes now."""
        self._is_asked = True
        if self._subscription is not None:
            self._subscription.wake()

    async def follow(self) -> None:
        """Send changes until cancelled."""
        looked_at = monotonic()
        async with self._store.subscribe(SESSION_CHANGES) as subscription:
            self._subscription = subscription
            while True:
                is_notified = await subscription.wait()
                if not is_notified and not self._is_asked and monotonic() - looked_at < _CHECK_SECONDS:
                    continue
                self._is_asked, looked_at = False, monotonic()
                if not self._hub.streams:
                    self._known.clear()
                    continue
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

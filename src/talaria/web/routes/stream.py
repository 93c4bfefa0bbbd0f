"""Routes of the event stream: one per browser, with topics that change while it is open."""

from collections.abc import Iterable
from contextlib import suppress

from talaria.access.browsers import BROWSERS_TOPIC, read_browsers
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import StoreError
from talaria.core.ids import SessionId, is_id
from talaria.http.errors import make_not_found
from talaria.http.routing import Reply, Route, make_event_reply, make_json_reply
from talaria.web.changes import SESSIONS, PageChannels, SessionListWatcher
from talaria.web.front_door import USER, WebCaller, WebRequest
from talaria.web.hub import BrowserStream, LiveHub
from talaria.web.session_views import UNREAD
from talaria.web.wire import Done, HelloMessage, StreamMessage, StreamQuery, TopicsRequest

_TAG = "web"
SEEN = "seen:"  # a topic for each visible page, with its conversation


class StreamRoutes:
    """The stream of a browser, and what it is about."""

    def __init__(
        self, store: Store, hub: LiveHub, pages: PageChannels, session_list: SessionListWatcher, digest: str
    ) -> None:
        self._store = store
        self._hub = hub
        self._pages = pages
        self._session_list = session_list
        self._digest = digest

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="GET", path="/web/stream", handler=self._open, summary="Follow events", scope=USER,
                  asks=StreamQuery, events=StreamMessage, tag=_TAG),
            Route(method="PUT", path="/web/stream/{stream_id}", handler=self._change, summary="Choose what to follow",
                  scope=USER, takes=TopicsRequest, reply_type=Done, tag=_TAG),
        )  # fmt: skip

    async def _open(self, request: WebRequest) -> Reply:
        asked = request.parse_query(StreamQuery)
        stream = self._hub.open_stream(asked.id, request.caller)
        stream.send(HelloMessage(self._digest))
        await self._set_topics(stream, asked.topics.split(","), ())
        return make_event_reply(stream)

    async def _change(self, request: WebRequest) -> Reply:
        change = request.read(TopicsRequest)
        stream = self._hub.find_stream(request.parts["stream_id"], request.caller)
        if stream is None:
            raise make_not_found("There is no such stream.", code="stream_not_found")
        await self._set_topics(stream, change.topics, change.again)
        return make_json_reply(Done())

    async def _set_topics(self, stream: BrowserStream, topics: Iterable[str], again: Iterable[str]) -> None:
        """Set what a stream is about; conversations that the person may not see are left out."""
        visible = await self._store.read(lambda tx: _find_visible(tx, topics, stream.caller))
        await self._set_seen(stream, topics)
        self._hub.set_sessions(stream, visible, [_session_of(topic) for topic in again])
        names = set(topics)
        self._pages.set_topics(stream, names)
        if SESSIONS in names:
            await self._session_list.add_stream(stream)
        else:
            stream.remove_topic(SESSIONS)

    async def _set_seen(self, stream: BrowserStream, topics: Iterable[str]) -> None:
        """Set what is on visible pages; conversations that were not there before have been read now."""
        added = stream.set_seen(tuple(one.removeprefix(SEEN) for one in topics if one.startswith(SEEN)))
        unread = await self._store.read(lambda tx: _find_unread(tx, added, stream.caller)) if added else []
        if unread:
            await self._store.write(lambda tx: [UNREAD.delete(tx, one) for one in unread])
            self._session_list.check_soon()


async def end_revoked_streams(store: Store, hub: LiveHub) -> None:
    """End the streams of browsers as they are signed out, in any process, until cancelled.

    A notification of another process may be lost, so this reads the store every second while there are streams.
    """
    async with store.subscribe(BROWSERS_TOPIC) as subscription:
        while True:
            await subscription.wait()
            if not (open_streams := hub.streams):
                continue
            with suppress(StoreError):
                known = await store.read(read_browsers)
                for stream in open_streams:
                    if stream.caller.digest and stream.caller.digest not in known:
                        stream.end()


def _find_visible(tx: Transaction, topics: Iterable[str], caller: WebCaller) -> list[SessionId]:
    found = []
    for topic in topics:
        session_id = _session_of(topic)
        session = tx.sessions.get(session_id) if is_id(session_id) else None
        if session is not None and caller.may_see(session):
            found.append(session_id)
    return found


def _find_unread(tx: Transaction, ids: Iterable[str], caller: WebCaller) -> list[SessionId]:
    """Return the unread conversations among some, as far as they are the caller's own."""
    known = [tx.sessions.get(SessionId(one)) for one in ids if is_id(one)]
    return [one.id for one in known if one and caller.is_own(one) and UNREAD.get(tx, one.id)]


def _session_of(topic: str) -> SessionId:
    """Return the conversation of a topic; an empty id for any other topic."""
    return SessionId(topic.removeprefix("session:") if topic.startswith("session:") else "")

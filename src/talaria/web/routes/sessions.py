"""Routes for the list of conversations: read, search, rename, archive and delete."""

from collections.abc import Callable

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.search import SearchQuery
from talaria.contracts.stores.sessions import Session, SessionChanges
from talaria.core.ids import SessionId
from talaria.http.errors import make_conflict
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.runtime.workers import is_leased, session_lease_name
from talaria.web.conversations import WebConversations
from talaria.web.front_door import USER, WebCaller, WebRequest
from talaria.web.session_list import SessionListWatcher
from talaria.web.session_views import read_detail, read_messages, read_page, read_row, require_session
from talaria.web.wire import (
    Done,
    MessagePage,
    SearchHitView,
    SearchQueryText,
    SessionDetail,
    SessionEdit,
    SessionListQuery,
    SessionPage,
    SessionRow,
    TranscriptQuery,
)

_TAG = "web"
_HITS = 20


class SessionListRoutes:
    """Conversations of all surfaces, as far as the signed-in person may see them.

    ``delete_files`` deletes what a deleted conversation has outside of the store.
    """

    def __init__(
        self,
        store: Store,
        conversations: WebConversations,
        session_list: SessionListWatcher,
        delete_files: Callable[[SessionId], None],
    ) -> None:
        self._store = store
        self._conversations = conversations
        self._session_list = session_list
        self._delete_files = delete_files

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        one = "/web/sessions/{session_id}"
        return (
            Route(method="GET", path="/web/sessions", handler=self._list, summary="List conversations",
                  scope=USER, asks=SessionListQuery, reply_type=SessionPage, tag=_TAG),
            Route(method="GET", path="/web/search", handler=self._search, summary="Search all messages",
                  scope=USER, asks=SearchQueryText, reply_type=list[SearchHitView], tag=_TAG),
            Route(method="GET", path=one, handler=self._show, summary="Show a conversation",
                  scope=USER, reply_type=SessionDetail, tag=_TAG),
            Route(method="GET", path=f"{one}/messages", handler=self._messages, summary="List messages",
                  scope=USER, asks=TranscriptQuery, reply_type=MessagePage, tag=_TAG),
            Route(method="PATCH", path=one, handler=self._edit, summary="Rename, archive or restore a conversation",
                  scope=USER, takes=SessionEdit, reply_type=SessionRow, tag=_TAG),
            Route(method="DELETE", path=one, handler=self._delete, summary="Delete a conversation",
                  scope=USER, reply_type=Done, tag=_TAG),
        )  # fmt: skip

    async def _list(self, request: WebRequest) -> Reply:
        asked = request.asked(SessionListQuery)
        page = await self._store.read(lambda tx: read_page(tx, request.caller, asked.after, archived=asked.archived))
        return make_json_reply(page)

    async def _search(self, request: WebRequest) -> Reply:
        asked, caller = request.asked(SearchQueryText), request.caller
        found = await self._store.read(lambda tx: _find_hits(tx, asked.q, caller))
        return make_json_reply(found)

    async def _show(self, request: WebRequest) -> Reply:
        name, caller = request.parts["session_id"], request.caller
        runs_here = self._conversations.runs(SessionId(name))
        detail = await self._store.read(
            lambda tx: read_detail(tx, require_session(tx, name, caller), runs_here=runs_here)
        )
        return make_json_reply(detail)

    async def _messages(self, request: WebRequest) -> Reply:
        name, asked, caller = request.parts["session_id"], request.asked(TranscriptQuery), request.caller
        page = await self._store.read(lambda tx: read_messages(tx, require_session(tx, name, caller), asked))
        return make_json_reply(page)

    async def _edit(self, request: WebRequest) -> Reply:
        name, wanted, caller = request.parts["session_id"], request.read(SessionEdit), request.caller

        def edit(tx: Transaction) -> SessionRow:
            session = require_session(tx, name, caller)
            changes = SessionChanges(title=wanted.title and wanted.title.strip(), archived=wanted.archived)
            return read_row(tx, tx.sessions.update(session.id, changes))

        row = await self._store.write(edit)
        self._session_list.check_soon()
        return make_json_reply(row)

    async def _delete(self, request: WebRequest) -> Reply:
        name, caller = request.parts["session_id"], request.caller
        session = await self._store.write(lambda tx: _delete_session(tx, name, caller))
        await self._conversations.forget(session.id)
        self._delete_files(session.id)
        self._session_list.check_soon()
        return make_json_reply(Done())


def _find_hits(tx: Transaction, text: str, caller: WebCaller) -> list[SearchHitView]:
    hits = tx.search.find(SearchQuery(text=text, seen_by=caller.viewer, limit=_HITS))
    return [SearchHitView(hit.session_id, hit.session_title, hit.seq, hit.at, hit.snippet) for hit in hits]


def _delete_session(tx: Transaction, name: str, caller: WebCaller) -> Session:
    session = require_session(tx, name, caller)
    if is_leased(tx, session_lease_name(session.id)):
        raise make_conflict("A turn is running in this conversation. Stop it first.", code="busy")
    tx.sessions.delete(session.id)
    return session

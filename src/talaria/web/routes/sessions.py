"""Routes for the list of conversations: read, search, rename, archive and delete."""

import asyncio
from typing import Protocol

from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import SearchQuery, Session, SessionChanges
from talaria.core.ids import SessionId
from talaria.http.errors import make_conflict, make_not_found
from talaria.http.routing import Reply, Route, make_json_reply
from talaria.runtime.workers import is_leased, session_lease_name
from talaria.sessions.branches import list_ancestors
from talaria.sessions.transcript_export import FORMATS, export_file_name, load_transcript
from talaria.web.changes import SessionListWatcher
from talaria.web.conversations import WebConversations
from talaria.web.files import WebFiles
from talaria.web.front_door import AGENT_OWNER, USER, WebCaller, WebRequest
from talaria.web.session_views import read_detail, read_messages, read_page, read_row, read_tree, require_session
from talaria.web.wire import (
    BranchView,
    Done,
    ExportQuery,
    MessagePage,
    OutputView,
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


class SessionFiles(Protocol):
    """Files of conversations that are not in the store."""

    def delete(self, session_id: SessionId) -> None:
        """Delete the files and the workspace of a deleted conversation."""

    def read_output(self, session_id: SessionId, file_name: str) -> str | None:
        """Return the stored output of a tool, without secrets; ``None`` if there is none with this name."""


class SessionListRoutes:
    """Conversations of all surfaces, as far as the signed-in person may see them.

    ``files`` are what conversations have outside of the store.
    """

    def __init__(
        self,
        store: Store,
        conversations: WebConversations,
        session_list: SessionListWatcher,
        files: SessionFiles,
        web_files: WebFiles,
    ) -> None:
        self._web_files = web_files
        self._store = store
        self._conversations = conversations
        self._session_list = session_list
        self._files = files

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
            Route(method="GET", path=f"{one}/messages", handler=self._list_messages, summary="List messages",
                  scope=USER, asks=TranscriptQuery, reply_type=MessagePage, tag=_TAG),
            Route(method="GET", path=f"{one}/tree", handler=self._show_tree,
                  summary="List the branches of a conversation", scope=USER, reply_type=list[BranchView], tag=_TAG),
            Route(method="GET", path=f"{one}/export", handler=self._export, summary="Download a conversation",
                  scope=USER, asks=ExportQuery, tag=_TAG),
            Route(method="GET", path=f"{one}/outputs/{{file_name}}", handler=self._show_output,
                  summary="Show the whole output of a tool", scope=AGENT_OWNER, reply_type=OutputView, tag=_TAG),
            Route(method="PATCH", path=one, handler=self._edit, summary="Rename, archive or restore a conversation",
                  scope=USER, takes=SessionEdit, reply_type=SessionRow, tag=_TAG),
            Route(method="DELETE", path=one, handler=self._delete, summary="Delete a conversation",
                  scope=USER, reply_type=Done, tag=_TAG),
        )  # fmt: skip

    async def _list(self, request: WebRequest) -> Reply:
        asked = request.parse_query(SessionListQuery)
        page = await self._store.read(lambda tx: read_page(tx, request.caller, asked))
        return make_json_reply(page)

    async def _search(self, request: WebRequest) -> Reply:
        asked, caller = request.parse_query(SearchQueryText), request.caller
        found = await self._store.read(lambda tx: _find_hits(tx, asked, caller))
        return make_json_reply(found)

    async def _show(self, request: WebRequest) -> Reply:
        name, caller = request.parts["session_id"], request.caller
        session_id = SessionId(name)
        runs_here, limit = self._conversations.is_running(session_id), self._conversations.context_limit(session_id)
        detail = await self._store.read(
            lambda tx: read_detail(
                tx, require_session(tx, name, caller), caller, runs_here=runs_here, context_limit=limit
            )
        )
        return make_json_reply(detail)

    async def _list_messages(self, request: WebRequest) -> Reply:
        name, asked, caller = request.parts["session_id"], request.parse_query(TranscriptQuery), request.caller
        page = await self._store.read(
            lambda tx: read_messages(tx, require_session(tx, name, caller), asked, self._web_files)
        )
        return make_json_reply(page)

    async def _show_tree(self, request: WebRequest) -> Reply:
        name, caller = request.parts["session_id"], request.caller
        return make_json_reply(
            await self._store.read(lambda tx: read_tree(tx, require_session(tx, name, caller), caller))
        )

    async def _export(self, request: WebRequest) -> Reply:
        name, caller = request.parts["session_id"], request.caller
        suffix, render = FORMATS[request.parse_query(ExportQuery).format]
        transcript = await self._store.read(lambda tx: load_transcript(tx, require_session(tx, name, caller).id))
        text = await asyncio.to_thread(render, transcript, None)
        file_name = export_file_name(transcript.session, suffix).encode("ascii", "ignore").decode()
        headers = {"content-disposition": f'attachment; filename="{file_name}"'}
        return Reply(body=text.encode(), content_type="text/plain; charset=utf-8", headers=headers)

    async def _show_output(self, request: WebRequest) -> Reply:
        name, file_name, caller = request.parts["session_id"], request.parts["file_name"], request.caller

        def list_holders(tx: Transaction) -> tuple[SessionId, ...]:
            session = require_session(tx, name, caller)
            return session.id, *list_ancestors(tx, session)

        for session_id in await self._store.read(list_holders):
            text = await asyncio.to_thread(self._files.read_output, session_id, file_name)
            if text is not None:
                return make_json_reply(OutputView(text))
        raise make_not_found("This output is no longer stored.", code="output_not_found")

    async def _edit(self, request: WebRequest) -> Reply:
        name, session_edit, caller = request.parts["session_id"], request.read(SessionEdit), request.caller

        def edit(tx: Transaction) -> SessionRow:
            session = require_session(tx, name, caller)
            changes = SessionChanges(
                title=session_edit.title and session_edit.title.strip(), archived=session_edit.archived
            )
            return read_row(tx, tx.sessions.update(session.id, changes))

        row = await self._store.write(edit)
        self._session_list.check_soon()
        return make_json_reply(row)

    async def _delete(self, request: WebRequest) -> Reply:
        name, caller = request.parts["session_id"], request.caller
        session = await self._store.write(lambda tx: _delete_session(tx, name, caller))
        await self._conversations.forget(session.id)
        self._files.delete(session.id)
        self._session_list.check_soon()
        return make_json_reply(Done())


def _find_hits(tx: Transaction, asked: SearchQueryText, caller: WebCaller) -> list[SearchHitView]:
    hits = tx.search.find(
        SearchQuery(text=asked.q, source=asked.source, owner=asked.owner, seen_by=caller.viewer, limit=_HITS * 5)
    )
    if asked.archived is not None:
        hits = [hit for hit in hits if _is_archived(tx, hit.session_id) is asked.archived]
    return [SearchHitView(hit.session_id, hit.session_title, hit.seq, hit.at, hit.snippet) for hit in hits[:_HITS]]


def _is_archived(tx: Transaction, session_id: SessionId) -> bool:
    session = tx.sessions.get(session_id)
    return session is not None and session.archived_at is not None


def _delete_session(tx: Transaction, name: str, caller: WebCaller) -> Session:
    session = require_session(tx, name, caller)
    if is_leased(tx, session_lease_name(session.id)):
        raise make_conflict("A turn is running in this conversation. Stop it first.", code="busy")
    tx.sessions.delete(session.id)
    return session

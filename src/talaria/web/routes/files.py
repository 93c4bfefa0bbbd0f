"""Routes of files: upload before a message is sent, and download from a conversation."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from talaria.contracts.store import Store
from talaria.http.errors import Problem
from talaria.http.routing import Reply, Route, make_file_reply, make_json_reply
from talaria.web.files import WebFiles
from talaria.web.front_door import USER, WebRequest
from talaria.web.session_views import require_session
from talaria.web.wire import Done, FileRow, FilesQuery, TranscriptionView, UploadQuery, UploadView

_TAG = "web"

Transcribe = Callable[[Path, str], Awaitable[str]]


class FileRoutes:
    """Uploads of a person and files of conversations; ``transcribe`` returns the text of a recording."""

    def __init__(self, store: Store, files: WebFiles, limit: int, transcribe: Transcribe) -> None:
        self._store = store
        self._files = files
        self._limit = limit
        self._transcribe = transcribe

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route(method="POST", path="/web/uploads", handler=self._upload, summary="Upload a file for a message",
                  scope=USER, asks=UploadQuery, reply_type=UploadView, status=201, body_limit=self._limit, tag=_TAG),
            Route(method="GET", path="/web/uploads/{upload_id}", handler=self._show_upload,
                  summary="Show a file that isn't sent yet", scope=USER, sends_file=True, tag=_TAG),
            Route(method="DELETE", path="/web/uploads/{upload_id}", handler=self._drop,
                  summary="Delete a file that isn't sent yet", scope=USER, reply_type=Done, tag=_TAG),
            Route(method="GET", path="/web/files", handler=self._list, summary="List files of conversations",
                  scope=USER, asks=FilesQuery, reply_type=list[FileRow], tag=_TAG),
            Route(method="GET", path="/web/files/{file_id}", handler=self._show, summary="Download a file",
                  scope=USER, sends_file=True, tag=_TAG),
            Route(method="POST", path="/web/transcriptions", handler=self._to_text, summary="Transcribe a recording",
                  scope=USER, asks=UploadQuery, reply_type=TranscriptionView, body_limit=self._limit, tag=_TAG),
        )  # fmt: skip

    async def _upload(self, request: WebRequest) -> Reply:
        return make_json_reply(await self._stage(request), status=201)

    async def _stage(self, request: WebRequest) -> UploadView:
        if not request.body:
            raise Problem("This file is empty.", code="empty_file")
        name = request.parse_query(UploadQuery).name
        return await asyncio.to_thread(self._files.stage, request.caller.person, name, request.body)

    async def _show_upload(self, request: WebRequest) -> Reply:
        path = self._files.find_upload(request.caller.person, request.parts["upload_id"])
        return await asyncio.to_thread(make_file_reply, path)

    async def _drop(self, request: WebRequest) -> Reply:
        await asyncio.to_thread(self._files.drop, request.caller.person, request.parts["upload_id"])
        return make_json_reply(Done())

    async def _list(self, request: WebRequest) -> Reply:
        paths = await asyncio.to_thread(self._files.list_paths, request.parse_query(FilesQuery).session)
        owners = {self._files.session_of(path) for path in paths}
        known = await self._store.read(lambda tx: {one: tx.sessions.get(one) for one in owners})
        seen = {one: found for one, found in known.items() if found is not None and request.caller.may_see(found)}

        def describe() -> list[FileRow]:
            return [
                self._files.describe(path, seen[one]) for path in paths if (one := self._files.session_of(path)) in seen
            ]

        return make_json_reply(await asyncio.to_thread(describe))

    async def _show(self, request: WebRequest) -> Reply:
        session_id, path = await asyncio.to_thread(self._files.find, request.parts["file_id"])
        await self._store.read(lambda tx: require_session(tx, session_id, request.caller))
        return await asyncio.to_thread(make_file_reply, path)

    async def _to_text(self, request: WebRequest) -> Reply:
        upload, person = await self._stage(request), request.caller.person
        try:
            path = self._files.find_upload(person, upload.id)
            text = await self._transcribe(path, request.parse_query(UploadQuery).type or upload.media_type)
        finally:
            await asyncio.to_thread(self._files.drop, person, upload.id)
        return make_json_reply(TranscriptionView(text))

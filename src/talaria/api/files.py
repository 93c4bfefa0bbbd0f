"""Files of the API: those that clients send, and those that the agent sends, with downloads."""

import asyncio
import base64
import binascii
import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from msgspec import Meta, Struct

from talaria.api.front_door import ApiCaller, ApiRequest
from talaria.api.turns.session_pool import require_session
from talaria.contracts.store import Store, Transaction
from talaria.core.errors import Refused, TalariaError
from talaria.core.ids import SessionId, is_id
from talaria.core.messages import File, Image, image_type
from talaria.http.errors import Problem, make_not_found
from talaria.http.routing import Reply, Route, make_file_reply, make_json_reply
from talaria.settings.atomic_files import OWNER_ONLY_FILE, make_folder

T = TypeVar("T")
_TAG = "files"
_SENT = "sent"  # the folder of a session in which `send_file` stores its copies
_ID = re.compile(r"file-([0-9a-z]{16})-([0-9a-f]{16})")
_MAX_BYTES = 5_000_000  # bytes; the limit of most providers
_MAX_URL = 100
_LONGEST_NAME = 100
FetchUrl = Callable[[str], Awaitable[bytes]]


class ApiFile(Struct, frozen=True):
    """A file in an answer; `GET /v1/files/{id}/content` downloads it."""

    id: str
    filename: str
    media_type: str


class FileObject(Struct, frozen=True, kw_only=True):
    """A file that the agent has sent."""

    id: str
    bytes: int
    created_at: int
    filename: str
    session_id: str
    object: Literal["file"] = "file"
    purpose: Literal["assistants_output"] = "assistants_output"
    status: Literal["processed"] = "processed"


class SentFilesQuery(Struct, frozen=True):
    """Which files to list: those of a session or all, after the file with this id."""

    session_id: Annotated[str, Meta(max_length=64)] = ""
    after: Annotated[str, Meta(max_length=64)] = ""
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 100
    order: Literal["asc", "desc"] = "desc"


class FileList(Struct, frozen=True):
    """A page of files."""

    data: list[FileObject]
    first_id: str | None
    last_id: str | None
    has_more: bool
    object: Literal["list"] = "list"


def to_api_files(files: Iterable[Image | File]) -> tuple[ApiFile, ...]:
    """Return the files of a tool result that clients can download."""
    found = ((_make_id(path := Path(file.source)), path.name, file.media_type) for file in files)
    return tuple(ApiFile(file_id, name, media_type) for file_id, name, media_type in found if file_id)


def content_path(file_id: str) -> str:
    """Return the path from which a file is downloaded."""
    return f"/v1/files/{file_id}/content"


class SentFileRoutes:
    """Files below ``media`` that the agent has sent, for the key of their session."""

    def __init__(self, store: Store, media: Path) -> None:
        self._store = store
        self._media = media

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        one = "/v1/files/{file_id}"
        return (
            Route(method="GET", path="/v1/files", handler=self._list, summary="List files sent by the agent",
                  scope="chat", asks=SentFilesQuery, reply_type=FileList, tag=_TAG),
            Route(method="GET", path=one, handler=self._show, summary="Describe a file", scope="chat",
                  reply_type=FileObject, tag=_TAG),
            Route(method="GET", path=f"{one}/content", handler=self._download, summary="Download a file",
                  scope="chat", sends_file=True, tag=_TAG),
        )  # fmt: skip

    async def _list(self, request: ApiRequest) -> Reply:
        asked = request.parse_query(SentFilesQuery)
        objects = await asyncio.to_thread(self._describe_all, asked.session_id)
        session_ids = {one.session_id for one in objects}
        own = await self._store.read(lambda tx: {one for one in session_ids if _may_read(tx, one, request.caller)})
        known = [one for one in objects if one.session_id in own]
        known.sort(key=lambda one: (one.created_at, one.id), reverse=asked.order == "desc")
        if asked.after:
            position = next((number for number, one in enumerate(known) if one.id == asked.after), None)
            if position is None:
                raise _make_unknown(asked.after, param="after")
            known = known[position + 1 :]
        shown = known[: asked.limit]
        first_id, last_id = (shown[0].id, shown[-1].id) if shown else (None, None)
        return make_json_reply(FileList(shown, first_id, last_id, len(known) > len(shown)))

    async def _show(self, request: ApiRequest) -> Reply:
        return make_json_reply(await self._read(request, _describe))

    async def _download(self, request: ApiRequest) -> Reply:
        return await self._read(request, make_file_reply)

    async def _read(self, request: ApiRequest, read: Callable[[Path], T]) -> T:
        """Return what ``read`` makes of a file in a session of the caller, or raise a `Problem`."""
        file_id = request.parts["file_id"]
        parts = _ID.fullmatch(file_id)
        if parts is None or not await self._store.read(lambda tx: _may_read(tx, parts[1], request.caller)):
            raise _make_unknown(file_id)
        try:
            return await asyncio.to_thread(lambda: read(self._find_path(parts[1], parts[2])))
        except FileNotFoundError as error:  # deleted with its session
            raise _make_unknown(file_id) from error

    def _find_path(self, session_id: str, name: str) -> Path:
        """Return the path of a file; raises `FileNotFoundError` if there is none."""
        folder = self._media / session_id / _SENT / name
        return next(folder.iterdir())

    def _describe_all(self, session_id: str) -> list[FileObject]:
        if session_id and not is_id(session_id):
            return []
        found = []
        for path in self._media.glob(f"{session_id or '*'}/{_SENT}/*/*"):
            with suppress(FileNotFoundError):  # deleted with its session
                found.append(_describe(path))
        return [one for one in found if one.id]


class ImageStore:
    """Stores images and files below ``media``, in a folder per session; ``fetch`` downloads images on the web.

    ``fetch`` raises a `TalariaError` for forbidden addresses: this machine and its network.
    """

    def __init__(self, media: Path, fetch: FetchUrl) -> None:
        self._media = media
        self._fetch = fetch

    async def store_image(self, url: str, session_id: SessionId) -> Image:
        """Return a stored image, or raise a `Problem` with the reason.

        Raises `Refused` for an id not of our form, which could name another folder.
        """
        if not is_id(session_id):
            raise Refused(f"{session_id[:64]!r} is not a session id.")
        if url.startswith("data:"):
            data = await asyncio.to_thread(_decode_data_url, url)
        elif url.startswith(("http://", "https://")):
            data = await self._fetch_image(url)
        else:
            raise _make_problem("An image URL must start with `data:`, https:// or http://.")
        media_type = image_type(data[:16])
        if media_type is None:
            raise _make_problem("Unsupported image format. Use PNG, JPEG, GIF or WebP.")
        if len(data) > _MAX_BYTES:
            raise _make_problem(f"An image may have at most {_MAX_BYTES:,} bytes; this one has {len(data):,}.")
        path = await asyncio.to_thread(self._write_file, data, media_type, session_id)
        return Image(str(path), media_type)

    async def store_file(self, data_url: str, name: str, session_id: SessionId) -> File:
        """Return a stored file, which the agent reads with its tools, or raise a `Problem` with the reason."""
        if not is_id(session_id):
            raise Refused(f"{session_id[:64]!r} is not a session id.")
        if not data_url.startswith("data:"):
            raise _make_problem("`file_data` must be a `data:` URL. Files on the web aren't fetched.", "invalid_file")
        data = await asyncio.to_thread(_decode_data_url, data_url)
        media_type = data_url.removeprefix("data:").partition(";")[0] or "application/octet-stream"
        path = await asyncio.to_thread(self._write_named_file, data, name, session_id)
        return File(str(path), path.name, media_type)

    def _write_named_file(self, data: bytes, name: str, session_id: SessionId) -> Path:
        safe = Path(name.replace("\0", "").replace("\\", "/")).name.lstrip(".")[-_LONGEST_NAME:] or "file"
        folder = self._media / session_id / hashlib.sha256(data).hexdigest()[:24]
        make_folder(folder)
        path = folder / safe
        path.touch(OWNER_ONLY_FILE)
        path.write_bytes(data)
        return path

    async def _fetch_image(self, url: str) -> bytes:
        try:
            return await self._fetch(url)
        except TalariaError as error:
            raise _make_problem(f"Can't fetch the image at {url[:_MAX_URL]}: {error}.") from error

    def _write_file(self, data: bytes, media_type: str, session_id: SessionId) -> Path:
        folder = self._media / session_id
        make_folder(folder)
        name = hashlib.sha256(data).hexdigest()[:24]
        path = folder / f"{name}.{media_type.partition('/')[2]}"
        if not path.exists():
            partial_path = path.with_suffix(".part")
            partial_path.touch(OWNER_ONLY_FILE)
            partial_path.write_bytes(data)
            partial_path.replace(path)
        return path


def _may_read(tx: Transaction, session_id: str, caller: ApiCaller) -> bool:
    try:
        return bool(require_session(tx, SessionId(session_id), caller))
    except Problem:
        return False


def _describe(path: Path) -> FileObject:
    state = path.stat()
    return FileObject(
        id=_make_id(path),
        bytes=state.st_size,
        created_at=int(state.st_mtime),
        filename=path.name,
        session_id=path.parts[-4],
    )


def _make_id(path: Path) -> str:
    """Return the id of a file that was sent; empty for any other file."""
    session_id, sent, name = path.parts[-4:-1] if len(path.parts) > 4 else ("", "", "")
    file_id = f"file-{session_id}-{name}"
    return file_id if sent == _SENT and is_id(session_id) and _ID.fullmatch(file_id) else ""


def _make_unknown(file_id: str, param: str | None = None) -> Problem:
    return make_not_found(f"There is no file `{file_id[:64]}`.", param=param, code="file_not_found")


def _decode_data_url(url: str) -> bytes:
    head, comma, text = url.partition(",")
    if not comma or not head.endswith(";base64"):
        raise _make_problem("A `data:` URL must be base64-encoded.")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _make_problem("The base64 of a `data:` URL is invalid.") from error


def _make_problem(message: str, code: str = "invalid_image") -> Problem:
    return Problem(message, param="messages", code=code)

"""Images and files sent by clients, stored in the folder of their session."""

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from talaria.core.errors import Refused, TalariaError
from talaria.core.ids import SessionId, is_id
from talaria.core.messages import File, Image, image_type
from talaria.http.errors import Problem
from talaria.settings.atomic_files import OWNER_ONLY_FILE, make_folder

_MAX_BYTES = 5_000_000  # bytes; the limit of most providers
_MAX_URL = 100
_LONGEST_NAME = 100

FetchUrl = Callable[[str], Awaitable[bytes]]


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

"""Pictures that a client sends along: kept in files of the conversation, wherever they came from."""

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path

from talaria.api.problems import Problem
from talaria.core.errors import Refused, TalariaError
from talaria.core.ids import SessionId, is_id
from talaria.core.messages import Image
from talaria.core.pictures import picture_type
from talaria.settings.files import OWNER_ONLY_FILE, make_folder

_LIMIT = 5_000_000  # bytes; what the usual providers take
_SHOWN = 100

Fetch = Callable[[str], Awaitable[bytes]]


class Pictures:
    """Keeps pictures below ``media``, in a folder of their conversation; ``fetch`` gets those of the web.

    ``fetch`` raises a `TalariaError` for what may not be reached: addresses of this machine and of its network.
    """

    def __init__(self, media: Path, fetch: Fetch) -> None:
        self._media = media
        self._fetch = fetch

    async def take_in(self, url: str, session_id: SessionId) -> Image:
        """Return a picture that is kept, or raise a `Problem` that says why it cannot be.

        Raises `Refused` for an id that is not of our form, which could name another folder.
        """
        if not is_id(session_id):
            raise Refused(f"{session_id[:64]!r} is not the id of a session.")
        if url.startswith("data:"):
            data = await asyncio.to_thread(_decoded, url)
        elif url.startswith(("http://", "https://")):
            data = await self._fetched(url)
        else:
            raise _bad("A picture is a `data:` address, or one that begins with https:// or http://.")
        media_type = picture_type(data[:16])
        if media_type is None:
            raise _bad("That is no picture that models take: PNG, JPEG, GIF or WebP.")
        if len(data) > _LIMIT:
            raise _bad(f"A picture may have {_LIMIT:,} bytes at most; this one has {len(data):,}.")
        path = await asyncio.to_thread(self._kept, data, media_type, session_id)
        return Image(str(path), media_type)

    async def _fetched(self, url: str) -> bytes:
        try:
            return await self._fetch(url)
        except TalariaError as error:
            raise _bad(f"The picture at {url[:_SHOWN]} could not be fetched: {error}.") from error

    def _kept(self, data: bytes, media_type: str, session_id: SessionId) -> Path:
        folder = self._media / session_id
        make_folder(folder)
        name = hashlib.sha256(data).hexdigest()[:24]
        path = folder / f"{name}.{media_type.partition('/')[2]}"
        if not path.exists():
            unfinished = path.with_suffix(".part")
            unfinished.touch(OWNER_ONLY_FILE)
            unfinished.write_bytes(data)
            unfinished.replace(path)
        return path


def _decoded(url: str) -> bytes:
    head, comma, text = url.partition(",")
    if not comma or not head.endswith(";base64"):
        raise _bad("A `data:` address has to be written in base64.")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _bad("The base64 of a `data:` address cannot be read.") from error


def _bad(message: str) -> Problem:
    return Problem(message, param="messages", code="invalid_image")

"""Files on a homeserver, up and down; encrypted ones are read and written like the others."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp
import msgspec
import nio
from msgspec import Struct
from nio.crypto import decrypt_attachment

from talaria.core.errors import PlatformError, Rejected, Unreachable
from talaria.platforms.matrix.calls import ask
from talaria.platforms.matrix.events import EncryptedFile
from talaria.platforms.matrix.failures import failure
from talaria.platforms.matrix.settings import MatrixSettings

_CHUNK = 64 * 1024
_LONGEST_REFUSAL = 10_000


class _Refusal(Struct):
    """How a homeserver says no."""

    errcode: str = ""
    error: str = ""


class Media:
    """The files of one account."""

    def __init__(self, client: nio.AsyncClient, settings: MatrixSettings) -> None:
        self._client = client
        self._limit = settings.file_limit
        self._patience = settings.file_patience

    async def upload(self, path: Path, name: str, media_type: str, *, encrypt: bool) -> dict[str, Any]:
        """Upload a file and return where it is, as the content of an event says it."""
        data = await asyncio.to_thread(path.read_bytes)  # a path would be opened by the library, and left open
        shown = None if encrypt else name
        sent = self._client.upload(lambda *_: data, media_type, shown, encrypt=encrypt, filesize=len(data))
        keys: dict[str, Any] | None = None

        async def answered() -> Any:
            nonlocal keys
            answer, keys = await sent
            return answer

        answer = await ask(answered(), self._patience)
        return {"file": {**keys, "url": answer.content_uri}} if keys else {"url": answer.content_uri}

    async def download(self, reference: str) -> bytes:
        """Download a file; raises `Rejected` where it is larger than we take or has been tampered with."""
        try:
            secret = msgspec.json.decode(reference, type=EncryptedFile) if reference.startswith("{") else None
        except msgspec.MsgspecError as error:
            raise Rejected(f"this is no file on a homeserver: {error}") from error
        url = secret.url if secret else reference
        server, _, media = url.removeprefix("mxc://").partition("/")
        if not url.startswith("mxc://") or not server or not media:
            raise Rejected("this is no file on a homeserver")
        data = await self._load(f"/_matrix/client/v1/media/download/{quote(server, safe='')}/{quote(media, safe='')}")
        if secret is None:
            return data
        try:
            return bytes(decrypt_attachment(data, secret.key.k, secret.hashes.get("sha256", ""), secret.iv))
        except nio.EncryptionError as error:
            raise Rejected(f"the file cannot be decrypted: {error}") from error

    async def _load(self, address: str) -> bytes:
        headers = {"Authorization": f"Bearer {self._client.access_token}"}
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                async with await self._client.send("GET", address, headers=headers, timeout=0) as answer:
                    if answer.status != 200:
                        raise await _refusal(answer)
                    return await self._content(answer.content)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"the file did not come: {str(error) or type(error).__name__}") from error

    async def _content(self, stream: aiohttp.StreamReader) -> bytes:
        data = bytearray()
        async for piece in stream.iter_chunked(_CHUNK):
            data += piece
            if len(data) > self._limit:
                raise Rejected(f"the file is larger than {self._limit} bytes")
        return bytes(data)


async def _refusal(answer: aiohttp.ClientResponse) -> PlatformError:
    body = await answer.content.read(_LONGEST_REFUSAL)
    try:
        said = msgspec.json.decode(body, type=_Refusal)
    except msgspec.MsgspecError:
        said = _Refusal()
    return failure(said.errcode, answer.status, said.error)

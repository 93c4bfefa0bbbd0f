"""Files on a homeserver, up and down; encrypted ones are read and written like the others."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import nio
from nio.crypto import decrypt_attachment

from talaria.core.errors import Rejected
from talaria.platforms.matrix.calls import ask, load
from talaria.platforms.matrix.events import EncryptedFile
from talaria.platforms.matrix.settings import MatrixSettings


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
        address = f"/_matrix/client/v1/media/download/{quote(server, safe='')}/{quote(media, safe='')}"
        data = await load(self._client, address, patience=self._patience, limit=self._limit)
        if secret is None:
            return data
        try:
            return bytes(decrypt_attachment(data, secret.key.k, secret.hashes.get("sha256", ""), secret.iv))
        except nio.EncryptionError as error:
            raise Rejected(f"the file cannot be decrypted: {error}") from error

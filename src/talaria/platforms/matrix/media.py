"""Upload and download files on a homeserver, encrypted or not."""

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import nio
from nio.crypto import decrypt_attachment

from talaria.core.errors import Rejected
from talaria.platforms.matrix.client import ask, fetch_bytes
from talaria.platforms.matrix.events import EncryptedFile
from talaria.platforms.matrix.settings import MatrixSettings


class Media:
    """The files of one account."""

    def __init__(self, client: nio.AsyncClient, settings: MatrixSettings) -> None:
        self._client = client
        self._limit = settings.file_limit
        self._patience = settings.file_patience

    async def upload(self, path: Path, name: str, media_type: str, *, encrypt: bool) -> dict[str, Any]:
        """Upload a file and return its reference for an event."""
        data = await asyncio.to_thread(path.read_bytes)  # the library would open a path, and leave it open
        public_name = None if encrypt else name
        sent = self._client.upload(lambda *_: data, media_type, public_name, encrypt=encrypt, filesize=len(data))
        keys: dict[str, Any] | None = None

        async def upload_file() -> Any:
            nonlocal keys
            answer, keys = await sent
            return answer

        answer = await ask(upload_file(), self._patience)
        return {"file": {**keys, "url": answer.content_uri}} if keys else {"url": answer.content_uri}

    async def download(self, reference: str) -> bytes:
        """Download a file; raises `Rejected` if it is too large or was tampered with."""
        try:
            encrypted_file = msgspec.json.decode(reference, type=EncryptedFile) if reference.startswith("{") else None
        except msgspec.MsgspecError as error:
            raise Rejected(f"not a file on a homeserver: {error}") from error
        url = encrypted_file.url if encrypted_file else reference
        server, _, media = url.removeprefix("mxc://").partition("/")
        if not url.startswith("mxc://") or not server or not media:
            raise Rejected("not a file on a homeserver")
        address = f"/_matrix/client/v1/media/download/{quote(server, safe='')}/{quote(media, safe='')}"
        data = await fetch_bytes(self._client, address, patience=self._patience, limit=self._limit)
        if encrypted_file is None:
            return data
        try:
            return bytes(
                decrypt_attachment(
                    data, encrypted_file.key.k, encrypted_file.hashes.get("sha256", ""), encrypted_file.iv
                )
            )
        except nio.EncryptionError as error:
            raise Rejected(f"can't decrypt the file: {error}") from error

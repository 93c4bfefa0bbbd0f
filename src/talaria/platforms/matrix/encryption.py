"""End-to-end encryption through nio, which has the keys and makes the calls about them.

Imported only for accounts with encryption: nio takes 35 MB (docs/adr/0047).
"""

import asyncio
import json
from collections.abc import Awaitable
from datetime import timedelta
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import nio
from nio.crypto import ENCRYPTION_ENABLED, decrypt_attachment, encrypt_attachment

from talaria.core.errors import PlatformError, Rejected, Unreachable
from talaria.platforms.matrix.account_state import Login
from talaria.platforms.matrix.client import to_platform_error
from talaria.platforms.matrix.events import EncryptedFile, RoomEvent, read_event
from talaria.platforms.matrix.settings import MatrixSettings


class RoomEncryption:
    """The keys of one account, stored in ``folder``. It has to see every sync before its events are decrypted."""

    def __init__(self, settings: MatrixSettings, folder: Path) -> None:
        if not ENCRYPTION_ENABLED:
            raise ModuleNotFoundError("vodozemac is not installed")
        self._patience = settings.patience
        self._folder = folder
        self._login: Login | None = None
        self._client = self._make_client(settings.homeserver, settings.user)

    async def open(self, login: Login) -> None:
        """Load the keys of a login; another login is another device, with keys of its own."""
        if login == self._login:
            return
        await self.close()
        self._client = self._make_client(login.homeserver, login.user_id)
        self._client.restore_login(login.user_id, login.device_id, login.token)
        self._login = login

    async def close(self) -> None:
        """Disconnect and close the key store; the next call opens both again."""
        await self._client.close()
        if self._client.store is not None:
            self._client.store.database.close()

    async def receive(self, body: bytes, *, full_state_sync: bool) -> None:
        """Take keys and members from the answer to a sync; messages are left to `decrypt`."""
        if full_state_sync:
            self._client.next_batch = ""  # otherwise nio would ignore an answer that it has seen before
        source = json.loads(body)
        for room in source.get("rooms", {}).get("join", {}).values():
            timeline = room.get("timeline", {})
            timeline["events"] = [event for event in timeline.get("events", ()) if "state_key" in event]
        answer = nio.SyncResponse.from_dict(source)
        if isinstance(answer, nio.ErrorResponse):
            raise Unreachable(f"the homeserver's answer is not Matrix: {answer.message}")
        await self._client.receive_response(answer)

    def decrypt(self, room_id: str, event: RoomEvent) -> RoomEvent | None:
        """Return the content of an encrypted event; ``None`` without its key."""
        source = {
            "type": event.type,
            "event_id": event.event_id,
            "sender": event.sender,
            "origin_server_ts": event.origin_server_ts,
            "content": event.content,
            "room_id": room_id,
        }
        parsed = nio.MegolmEvent.from_dict(source)
        if not isinstance(parsed, nio.MegolmEvent) or not parsed.sender_key or not parsed.session_id:
            return None
        try:
            content = read_event(self._client.decrypt_event(parsed).source)
        except nio.EncryptionError:
            return None
        # Only type and content are the sender's to choose.
        return msgspec.structs.replace(event, type=content.type, content=content.content) if content else None

    async def update_keys(self) -> None:
        """Make the calls about keys that the last sync and its messages require."""
        client = self._client
        if client.outgoing_to_device_messages:
            await self._ask(_find_first_error(client.send_to_device_messages()))
        if client.should_upload_keys:
            await self._ask(client.keys_upload())
        if client.should_query_keys:
            await self._ask(client.keys_query())
        if client.should_claim_keys:
            await self._ask(client.keys_claim(client.get_users_for_key_claiming()))

    async def post(self, room_id: str, kind: str, content: dict[str, Any], transaction: str) -> str:
        """Post an event to an encrypted room, once per transaction, and return its id."""
        room = self._client.rooms.get(room_id)
        if room is None or not room.encrypted:
            raise Rejected("this room is encrypted in a way that isn't supported")
        sent = self._client.room_send(room_id, kind, content, transaction, ignore_unverified_devices=True)
        return str((await self._ask(sent)).event_id)

    def encrypt_file(self, data: bytes) -> tuple[bytes, dict[str, Any]]:
        """Return an encrypted file, and its key for an event."""
        return encrypt_attachment(data)  # type: ignore[no-any-return]

    def decrypt_file(self, data: bytes, file: EncryptedFile) -> bytes:
        """Return the content of a file; raises `Rejected` if it was tampered with."""
        try:
            return bytes(decrypt_attachment(data, file.key.k, file.hashes.get("sha256", ""), file.iv))
        except nio.EncryptionError as error:
            raise Rejected(f"can't decrypt the file: {error}") from error

    def _make_client(self, homeserver: str, user: str) -> nio.AsyncClient:
        config = nio.AsyncClientConfig(
            max_limit_exceeded=0,
            max_timeouts=0,
            request_timeout=self._patience.total_seconds(),
            encryption_enabled=True,
        )
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return nio.AsyncClient(homeserver, user, store_path=str(self._folder), config=config)

    async def _ask(self, call: Awaitable[Any]) -> Any:
        """Return the result of a nio call; raises one of our errors for a refusal or a time-out."""
        try:
            async with asyncio.timeout(self._patience.total_seconds()):
                answer = await call
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"the homeserver doesn't answer: {str(error) or type(error).__name__}") from error
        except nio.SendRetryError as error:
            raise Unreachable(f"the room's keys haven't arrived yet: {error}") from error
        except (nio.ProtocolError, nio.EncryptionError) as error:
            raise Rejected(f"can't send that: {error}") from error
        if isinstance(answer, nio.ErrorResponse):
            raise _read_error(answer)
        return answer


async def _find_first_error(answers: Awaitable[list[Any]]) -> Any:
    """Return the first error among several answers, or nothing."""
    return next((one for one in await answers if isinstance(one, nio.ErrorResponse)), None)


def _read_error(answer: nio.ErrorResponse) -> PlatformError:
    wire = answer.transport_response
    milliseconds = answer.retry_after_ms
    if milliseconds is None and wire is not None:
        seconds = wire.headers.get("Retry-After", "")
        milliseconds = int(seconds) * 1000 if seconds.isdecimal() else None
    pause = None if milliseconds is None else timedelta(milliseconds=milliseconds)
    return to_platform_error(answer.status_code or "", wire.status if wire else 0, answer.message, retry_after=pause)

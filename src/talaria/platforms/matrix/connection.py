"""The connection of one account to its homeserver."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import nio
from msgspec import Struct
from nio.crypto import ENCRYPTION_ENABLED, decrypt_attachment

from talaria.core.errors import PlatformError, Refused, Rejected, Unreachable
from talaria.core.extras import install_command
from talaria.platforms.matrix.client import ask, fetch_bytes, to_login_error
from talaria.platforms.matrix.events import EncryptedFile, RoomEvent, read_event
from talaria.platforms.matrix.incoming import RoomInfo
from talaria.platforms.matrix.invitations import Invitation
from talaria.platforms.matrix.settings import MatrixSettings
from talaria.platforms.matrix.sync_state import Login

_MOST_REACTIONS = 100
_LARGEST_PAGE = 5_000_000
_MOST_EVENTS = 1000
_FULL_SYNC_TIMEOUT = timedelta(seconds=120)  # all rooms with all their members can be large
_TYPES = ["m.room.message", "m.room.encrypted", "m.reaction", "m.sticker", "m.room.member"]
_STATE = ["m.room.member", "m.room.name", "m.room.canonical_alias", "m.room.encryption"]
_NOTHING: dict[str, object] = {"types": []}
_FILTER = {
    "presence": _NOTHING,
    "account_data": _NOTHING,
    "room": {
        "account_data": _NOTHING,
        "ephemeral": _NOTHING,
        "timeline": {"limit": 50, "types": [*_TYPES, *_STATE]},
        "state": {"types": _STATE},
    },
}

log = logging.getLogger(__name__)


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


class _Page(Struct, frozen=True):
    """A page of events."""

    chunk: list[object] = []


class Reactions:
    """The reactions of one account's rooms."""

    def __init__(self, client: nio.AsyncClient, settings: MatrixSettings) -> None:
        self._client = client
        self._patience = settings.patience

    async def list_for(self, room_id: str, event_id: str) -> list[RoomEvent]:
        """Return the reactions to an event, the latest of them."""
        room, event = quote(room_id, safe=""), quote(event_id, safe="")
        address = f"/_matrix/client/v1/rooms/{room}/relations/{event}/m.annotation/m.reaction?limit={_MOST_REACTIONS}"
        body = await fetch_bytes(self._client, address, patience=self._patience, limit=_LARGEST_PAGE)
        try:
            page = msgspec.json.decode(body, type=_Page)
        except msgspec.MsgspecError as error:
            raise Unreachable(f"the homeserver's answer is not Matrix: {error}") from error
        return [one for source in page.chunk if (one := read_event(source)) is not None]

    async def remove(self, room_id: str, event_id: str, transaction: str) -> None:
        """Redact one of ours."""
        await ask(self._client.room_redact(room_id, event_id, tx_id=transaction), self._patience)


class RecentEvents:
    """The latest events, by id."""

    def __init__(self) -> None:
        self._events: OrderedDict[str, RoomEvent] = OrderedDict()

    def get(self, event_id: str) -> RoomEvent | None:
        """Return an event if it is cached."""
        return self._events.get(event_id)

    def add(self, event: RoomEvent) -> None:
        """Add an event, and drop the oldest if there are too many."""
        self._events[event.event_id] = event
        self._events.move_to_end(event.event_id)
        if len(self._events) > _MOST_EVENTS:
            self._events.popitem(last=False)


class RoomChanges(Struct, frozen=True):
    """The events of a room; ``gap`` is where to fetch missing earlier ones."""

    room_id: str
    events: list[RoomEvent]
    gap: str = ""


class SyncBatch(Struct, frozen=True):
    """All events up to a position."""

    position: str
    room_changes: list[RoomChanges]
    invitations: list[Invitation]


class MatrixConnection:
    """The connection to the homeserver through nio. ``folder`` has the keys of encrypted rooms."""

    def __init__(self, settings: MatrixSettings, folder: Path) -> None:
        if settings.encryption and not ENCRYPTION_ENABLED:
            raise Refused(f"Encrypted rooms need another library. Install it with `{install_command('matrix-e2e')}`.")
        self._settings = settings
        self._encrypted: dict[str, bool] = {}
        self._recent = RecentEvents()
        config = nio.AsyncClientConfig(
            max_limit_exceeded=0,
            max_timeouts=0,
            request_timeout=settings.patience.total_seconds(),
            encryption_enabled=settings.encryption,
        )
        if settings.encryption:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        store = str(folder) if settings.encryption else ""
        self._client = nio.AsyncClient(settings.homeserver, settings.user, store_path=store, config=config)
        self.media = Media(self._client, settings)
        self.reactions = Reactions(self._client, settings)

    @property
    def user_id(self) -> str:
        """Return our user id, once logged in."""
        return str(self._client.user_id)

    async def close(self) -> None:
        """Disconnect and close the key store; the next call opens both again."""
        await self._client.close()
        if self._client.store is not None:
            self._client.store.database.close()

    async def log_in(self, password: str) -> Login:
        """Log in as a new device; raises `BadCredentials` if the homeserver rejects us."""
        try:
            answer = await self._ask(self._client.login(password, device_name=self._settings.device_name))
        except PlatformError as error:
            raise to_login_error(error) from error
        return Login(self._settings.homeserver, answer.user_id, answer.device_id, answer.access_token)

    async def restore(self, token: str) -> Login:
        """Restore a login; raises `BadCredentials` if it has expired."""
        self._client.access_token = token
        answer = await self._ask(self._client.whoami())
        login = Login(self._settings.homeserver, answer.user_id, answer.device_id or "", token)
        self._client.user_id, self._client.device_id = login.user_id, login.device_id
        if self._settings.encryption:
            self._client.load_store()
        return login

    async def check_login(self) -> None:
        """Check that the homeserver answers and accepts us, before a call with a long time-out."""
        await self._ask(self._client.whoami())

    async def own_name(self) -> str:
        """Return our display name."""
        try:
            answer = await self._ask(self._client.get_displayname(self.user_id))
        except Rejected:
            return ""
        return answer.displayname or ""

    async def sync(self, since: str, *, full_state_sync: bool) -> SyncBatch:
        """Wait for events after a position.

        ``full_state_sync`` also fetches the state of all rooms, and doesn't wait.
        """
        if full_state_sync:
            self._client.next_batch = ""  # otherwise nio would ignore an answer that it has seen before
        poll = timedelta() if full_state_sync else self._settings.poll
        sync_call = self._client.sync(
            int(poll.total_seconds() * 1000),
            _FILTER,
            since=since or None,
            full_state=full_state_sync,
            set_presence="offline",
        )
        answer = await self._ask(
            sync_call, patience=poll + (_FULL_SYNC_TIMEOUT if full_state_sync else self._settings.patience)
        )
        if self._settings.encryption:
            await self._update_keys()
        joined = answer.rooms.join.items()
        room_changes = [
            RoomChanges(room_id, self._events(info.timeline.events), _find_gap(info.timeline))
            for room_id, info in joined
        ]
        invitations = [self._invitation(room_id, info.invite_state) for room_id, info in answer.rooms.invite.items()]
        return SyncBatch(answer.next_batch, room_changes, invitations)

    async def events_before(self, room_id: str, start: str, end: str) -> tuple[list[RoomEvent], str]:
        """Return a page of events before ``start``, newest first, and the start of the next page."""
        answer = await self._ask(
            self._client.room_messages(room_id, start, end or None, limit=100, message_filter={"types": _TYPES})
        )
        return self._events(answer.chunk), answer.end or ""

    async def event(self, room_id: str, event_id: str) -> RoomEvent | None:
        """Return one event; ``None`` if it doesn't exist for us."""
        found = self._recent.get(event_id) or await self._fetch_event(room_id, event_id)
        if found is not None:
            self._recent.add(found)
        return found

    async def _fetch_event(self, room_id: str, event_id: str) -> RoomEvent | None:
        try:
            answer = await self._ask(self._client.room_get_event(room_id, event_id))
        except Rejected:
            return None
        event = answer.event
        if isinstance(event, nio.MegolmEvent) and self._client.olm is not None:
            try:
                event = self._client.decrypt_event(event)
            except nio.EncryptionError:
                return None
        return read_event(event.source)

    def rooms(self, *room_ids: str) -> list[RoomInfo]:
        """Return the known state of these rooms, or of all we are in."""
        return [self._room(room_id) for room_id in room_ids or self._client.rooms]

    def _room(self, room_id: str) -> RoomInfo:
        joined_room = self._client.rooms.get(room_id)
        if joined_room is None:
            return RoomInfo(room_id)
        people = {user_id: user.display_name or "" for user_id, user in joined_room.users.items()}
        return RoomInfo(
            room_id, max(len(joined_room.users), joined_room.member_count or 0), joined_room.display_name or "", people
        )

    async def is_encrypted(self, room_id: str) -> bool:
        """Return whether messages in a room must be encrypted."""
        joined_room = self._client.rooms.get(room_id)
        if joined_room is not None:
            return bool(joined_room.encrypted)
        if room_id not in self._encrypted:
            try:
                await self._ask(self._client.room_get_state_event(room_id, "m.room.encryption"))
                self._encrypted[room_id] = True
            except Rejected:
                self._encrypted[room_id] = False
        return self._encrypted[room_id]

    async def post(self, room_id: str, kind: str, content: dict[str, Any], transaction: str) -> str:
        """Post an event, once per transaction, and return its id."""
        if self._settings.encryption and room_id not in self._client.rooms:
            raise Unreachable("the rooms aren't known yet, so nothing can be encrypted")
        sent = self._client.room_send(room_id, kind, content, transaction, ignore_unverified_devices=True)
        answer = await self._ask(sent)
        event_id = str(answer.event_id)
        self._recent.add(RoomEvent(type=kind, event_id=event_id, sender=self.user_id, content=content))
        return event_id

    async def join(self, room_id: str) -> None:
        """Accept an invitation."""
        await self._ask(self._client.join(room_id))

    async def show_typing(self, room_id: str, span: timedelta) -> None:
        """Show a typing indicator for a while."""
        await self._ask(self._client.room_typing(room_id, timeout=int(span.total_seconds() * 1000)))

    async def mark_read(self, room_id: str, event_id: str) -> None:
        """Send a read receipt."""
        await self._ask(self._client.room_read_markers(room_id, event_id, event_id))

    async def _ask(self, call: Awaitable[Any], *, patience: timedelta | None = None) -> Any:
        return await ask(call, patience or self._settings.patience)

    async def _update_keys(self) -> None:
        """Maintain the keys of encrypted rooms between two syncs."""
        client = self._client
        if client.outgoing_to_device_messages:
            await self._ask(_first_error(client.send_to_device_messages()))
        if client.should_upload_keys:
            await self._ask(client.keys_upload())
        if client.should_query_keys:
            await self._ask(client.keys_query())
        if client.should_claim_keys:
            await self._ask(client.keys_claim(client.get_users_for_key_claiming()))

    def _events(self, parsed: list[Any]) -> list[RoomEvent]:
        events = []
        for one in parsed:
            if isinstance(one, nio.MegolmEvent):
                log.warning("can't decrypt a message from %s in %s", one.sender, one.room_id)
            if (event := read_event(one.source)) is not None:
                self._recent.add(event)
                events.append(event)
        return events

    def _invitation(self, room_id: str, state: list[Any]) -> Invitation:
        inviter, direct = "", False
        for event in state:
            if isinstance(event, nio.InviteMemberEvent) and event.state_key == self.user_id:
                inviter, direct = event.sender, bool(event.content.get("is_direct"))
        return Invitation(room_id, inviter, direct)


async def _first_error(answers: Awaitable[list[Any]]) -> Any:
    """Return the first error among several answers, or nothing."""
    return next((one for one in await answers if isinstance(one, nio.ErrorResponse)), None)


def _find_gap(timeline: Any) -> str:
    return (timeline.prev_batch or "") if timeline.limited else ""

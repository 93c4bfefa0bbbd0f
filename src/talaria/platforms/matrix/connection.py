"""The connection of one account to its homeserver."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from talaria.core.errors import PlatformError, Refused, Rejected, Unreachable
from talaria.core.installation import install_command
from talaria.platforms.matrix.account_state import Invitation, Login, RoomState
from talaria.platforms.matrix.client import MatrixApi, decode, path_of, to_login_error
from talaria.platforms.matrix.events import (
    EncryptedFile,
    EventPage,
    InvitedRoom,
    RoomEvent,
    SyncAnswer,
    read_event,
    read_stripped_event,
)
from talaria.platforms.matrix.incoming import RoomInfo
from talaria.platforms.matrix.settings import MatrixSettings

if TYPE_CHECKING:
    from talaria.platforms.matrix.encryption import RoomEncryption

_MOST_REACTIONS = 100
_MOST_EVENTS = 1000
_PAGE_SIZE = 100
_FULL_SYNC_TIMEOUT = timedelta(seconds=120)  # all rooms with all their members can be large
_LARGEST_SYNC = 256_000_000
_TYPES = ["m.room.message", "m.room.encrypted", "m.reaction", "m.sticker", "m.room.member"]
_STATE = ["m.room.member", "m.room.name", "m.room.canonical_alias", "m.room.encryption"]
_NOTHING: dict[str, object] = {"types": []}
_FILTER = msgspec.json.encode(
    {
        "presence": _NOTHING,
        "account_data": _NOTHING,
        "room": {
            "account_data": _NOTHING,
            "ephemeral": _NOTHING,
            "timeline": {"limit": 50, "types": [*_TYPES, *_STATE]},
            "state": {"types": _STATE},
        },
    }
).decode()
_PAGE_FILTER = msgspec.json.encode({"types": _TYPES}).decode()

log = logging.getLogger(__name__)


class Media:
    """The files of one account."""

    def __init__(self, api: MatrixApi, encryption: "RoomEncryption | None") -> None:
        self._api = api
        self._encryption = encryption

    async def upload(self, path: Path, name: str, media_type: str, *, encrypt: bool) -> dict[str, Any]:
        """Upload a file and return its reference for an event."""
        data = await asyncio.to_thread(path.read_bytes)
        if not encrypt or self._encryption is None:
            return {"url": await self._api.upload(data, media_type, name)}
        data, keys = await asyncio.to_thread(self._encryption.encrypt_file, data)
        return {"file": {**keys, "url": await self._api.upload(data, "application/octet-stream", "")}}

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
        if encrypted_file is None:
            return await self._api.download(server, media)
        if self._encryption is None:
            raise Rejected("the file is encrypted. To read it, turn on encryption (needs the extra matrix-e2e)")
        data = await self._api.download(server, media)
        return await asyncio.to_thread(self._encryption.decrypt_file, data, encrypted_file)


class Reactions:
    """The reactions of one account's rooms."""

    def __init__(self, api: MatrixApi) -> None:
        self._api = api

    async def list_for(self, room_id: str, event_id: str) -> list[RoomEvent]:
        """Return the reactions to an event, the latest of them."""
        path = path_of("rooms", room_id, "relations", event_id, "m.annotation", "m.reaction")
        page = await self._api.get(path, EventPage, query={"limit": _MOST_REACTIONS}, version="v1")
        return _read_events(page.chunk)

    async def remove(self, room_id: str, event_id: str, transaction: str) -> None:
        """Redact one of ours."""
        await self._api.send("PUT", path_of("rooms", room_id, "redact", event_id, transaction), {}, _Posted)


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


class _Whoami(Struct, frozen=True):
    """The account and device of a token; tokens of bridges have no device."""

    user_id: str
    device_id: str = ""


class _LoggedIn(_Whoami, frozen=True, kw_only=True):
    """The answer to a login."""

    access_token: str


class _Profile(Struct, frozen=True):
    """The name of an account."""

    displayname: str | None = None


class _Posted(Struct, frozen=True):
    """The id of a new event."""

    event_id: str


class MatrixConnection:
    """The connection to the homeserver. ``folder`` has the keys of encrypted rooms."""

    def __init__(self, settings: MatrixSettings, folder: Path) -> None:
        self._settings = settings
        self._api = MatrixApi(settings)
        self._encryption = _open_encryption(settings, folder) if settings.encryption else None
        self._user_id = ""
        self._rooms: dict[str, RoomState] = {}
        self._encrypted: dict[str, bool] = {}
        self._recent = RecentEvents()
        self.media = Media(self._api, self._encryption)
        self.reactions = Reactions(self._api)

    @property
    def user_id(self) -> str:
        """Return our user id, once logged in."""
        return self._user_id

    async def close(self) -> None:
        """Disconnect and close the key store; the next call opens both again."""
        await self._api.close()
        if self._encryption is not None:
            await self._encryption.close()

    async def log_in(self, password: str) -> Login:
        """Log in as a new device; raises `BadCredentials` if the homeserver rejects us."""
        user = self._settings.user
        by_mail = {"type": "m.id.thirdparty", "medium": "email", "address": user}
        is_mail = "@" in user and not user.startswith("@")
        body = {
            "type": "m.login.password",
            "identifier": by_mail if is_mail else {"type": "m.id.user", "user": user},
            "password": password,
            "initial_device_display_name": self._settings.device_name,
        }
        try:
            answer = await self._api.send("POST", "/login", body, _LoggedIn)
        except PlatformError as error:
            raise to_login_error(error) from error
        return await self._use(Login(self._settings.homeserver, answer.user_id, answer.device_id, answer.access_token))

    async def restore(self, token: str) -> Login:
        """Restore a login; raises `BadCredentials` if it has expired."""
        self._api.set_token(token)
        answer = await self._api.get("/account/whoami", _Whoami)
        return await self._use(Login(self._settings.homeserver, answer.user_id, answer.device_id, token))

    async def _use(self, login: Login) -> Login:
        self._api.set_token(login.token)
        self._user_id = login.user_id
        if self._encryption is not None:
            await self._encryption.open(login)
        return login

    async def check_login(self) -> None:
        """Check that the homeserver answers and accepts us, before a call with a long time-out."""
        await self._api.get("/account/whoami", _Whoami)

    async def own_name(self) -> str:
        """Return our display name."""
        try:
            answer = await self._api.get(path_of("profile", self.user_id, "displayname"), _Profile)
        except Rejected:
            return ""
        return answer.displayname or ""

    async def sync(self, since: str, *, full_state_sync: bool) -> SyncBatch:
        """Wait for events after a position.

        ``full_state_sync`` also fetches the state of all rooms, and doesn't wait.
        """
        poll = timedelta() if full_state_sync else self._settings.poll
        query: dict[str, str | int] = {
            "since": since,
            "timeout": int(poll.total_seconds() * 1000),
            "filter": _FILTER,
            "full_state": "true" if full_state_sync else "",
            "set_presence": "offline",
        }
        patience = poll + (_FULL_SYNC_TIMEOUT if full_state_sync else self._settings.patience)
        body = await self._api.fetch("/sync", query, patience, limit=_LARGEST_SYNC)
        answer = decode(body, SyncAnswer)
        if self._encryption is not None:
            await self._encryption.receive(body, full_state_sync=full_state_sync)
        rooms = answer.rooms
        for room_id in rooms.leave:
            self._rooms.pop(room_id, None)
        room_changes = []
        for room_id, joined in rooms.join.items():
            happened = _read_events(joined.timeline.events)
            state = self._rooms.setdefault(room_id, RoomState())
            state.apply([*_read_events(joined.state.events), *happened])
            gap = joined.timeline.prev_batch if joined.timeline.limited else None
            room_changes.append(RoomChanges(room_id, self._decrypt(room_id, happened), gap or ""))
        if self._encryption is not None:
            await self._encryption.update_keys()
        invitations = [self._read_invitation(room_id, invited) for room_id, invited in rooms.invite.items()]
        return SyncBatch(answer.next_batch, room_changes, invitations)

    async def events_before(self, room_id: str, start: str, end: str) -> tuple[list[RoomEvent], str]:
        """Return a page of events before ``start``, newest first, and the start of the next page."""
        query: dict[str, str | int] = {"dir": "b", "from": start, "to": end}
        query |= {"limit": _PAGE_SIZE, "filter": _PAGE_FILTER}
        page = await self._api.get(path_of("rooms", room_id, "messages"), EventPage, query=query)
        return self._decrypt(room_id, _read_events(page.chunk)), page.end or ""

    async def event(self, room_id: str, event_id: str) -> RoomEvent | None:
        """Return one event; ``None`` if it doesn't exist for us."""
        return self._recent.get(event_id) or await self._fetch_event(room_id, event_id)

    async def _fetch_event(self, room_id: str, event_id: str) -> RoomEvent | None:
        try:
            source = await self._api.get(path_of("rooms", room_id, "event", event_id), Raw)
        except Rejected:
            return None
        return next(iter(self._decrypt(room_id, _read_events([source]))), None)

    def rooms(self, *room_ids: str) -> list[RoomInfo]:
        """Return the known state of these rooms, or of all we are in."""
        return [
            self._rooms[room_id].describe(room_id, self.user_id) if room_id in self._rooms else RoomInfo(room_id)
            for room_id in room_ids or self._rooms
        ]

    async def is_encrypted(self, room_id: str) -> bool:
        """Return whether messages in a room must be encrypted."""
        if room_id in self._rooms:
            return self._rooms[room_id].encrypted
        if room_id not in self._encrypted:
            try:
                await self._api.get(path_of("rooms", room_id, "state", "m.room.encryption"), Raw)
                self._encrypted[room_id] = True
            except Rejected:
                self._encrypted[room_id] = False
        return self._encrypted[room_id]

    async def post(self, room_id: str, kind: str, content: dict[str, Any], transaction: str) -> str:
        """Post an event, once per transaction, and return its id."""
        if self._encryption is not None and room_id not in self._rooms:
            raise Unreachable("the rooms aren't known yet, so nothing can be encrypted")
        if self._encryption is not None and self._rooms[room_id].encrypted:
            event_id = await self._encryption.post(room_id, kind, content, transaction)
        else:
            path = path_of("rooms", room_id, "send", kind, transaction)
            event_id = (await self._api.send("PUT", path, content, _Posted)).event_id
        self._recent.add(RoomEvent(type=kind, event_id=event_id, sender=self.user_id, content=content))
        return event_id

    async def join(self, room_id: str) -> None:
        """Accept an invitation."""
        await self._api.send("POST", path_of("rooms", room_id, "join"), {}, Raw)

    async def show_typing(self, room_id: str, span: timedelta) -> None:
        """Show a typing indicator for a while."""
        body = {"typing": True, "timeout": int(span.total_seconds() * 1000)}
        await self._api.send("PUT", path_of("rooms", room_id, "typing", self.user_id), body, Raw)

    async def mark_read(self, room_id: str, event_id: str) -> None:
        """Send a read receipt."""
        body = {"m.fully_read": event_id, "m.read": event_id}
        await self._api.send("POST", path_of("rooms", room_id, "read_markers"), body, Raw)

    def _decrypt(self, room_id: str, events: Sequence[RoomEvent]) -> list[RoomEvent]:
        """Return events with the encrypted ones decrypted, if we have their keys, and remember them."""
        found = []
        for event in events:
            decrypted: RoomEvent | None = event
            if event.type == "m.room.encrypted":
                decrypted = self._encryption.decrypt(room_id, event) if self._encryption else None
                if decrypted is None:
                    log.warning("can't decrypt a message from %s in %s", event.sender, room_id)
            found.append(decrypted or event)
            self._recent.add(found[-1])
        return found

    def _read_invitation(self, room_id: str, invited: InvitedRoom) -> Invitation:
        inviter, direct = "", False
        for source in invited.invite_state.events:
            event = read_stripped_event(source)
            if event is None or event.type != "m.room.member" or event.state_key != self.user_id:
                continue
            if event.content.get("membership") == "invite":
                inviter, direct = event.sender, bool(event.content.get("is_direct"))
        return Invitation(room_id, inviter, direct)


def _read_events(sources: Iterable[Raw]) -> list[RoomEvent]:
    return [event for source in sources if (event := read_event(source)) is not None]


def _open_encryption(settings: MatrixSettings, folder: Path) -> "RoomEncryption":
    try:
        from talaria.platforms.matrix.encryption import RoomEncryption  # noqa: PLC0415 (an extra, and 35 MB)

        return RoomEncryption(settings, folder)
    except ModuleNotFoundError as error:
        command = install_command("matrix-e2e")
        raise Refused(f"Encrypted rooms need another library. Install it with `{command}`.") from error

"""One account's line to its homeserver: every call has a deadline, every refusal is one of our errors."""

import logging
from collections.abc import Awaitable
from datetime import timedelta
from pathlib import Path
from typing import Any

import nio
from msgspec import Struct
from nio.crypto import ENCRYPTION_ENABLED

from talaria.core.errors import PlatformError, Refused, Rejected, Unreachable
from talaria.core.extras import install_command
from talaria.platforms.matrix.calls import ask
from talaria.platforms.matrix.events import RoomEvent, read_event
from talaria.platforms.matrix.failures import login_failure
from talaria.platforms.matrix.incoming import Room
from talaria.platforms.matrix.invitations import Invitation
from talaria.platforms.matrix.keeping import Login
from talaria.platforms.matrix.marks import Marks
from talaria.platforms.matrix.media import Media
from talaria.platforms.matrix.recent import RecentEvents
from talaria.platforms.matrix.settings import MatrixSettings

log = logging.getLogger(__name__)

_FIRST_SYNC = timedelta(seconds=120)  # all rooms with all their members can be much
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


class News(Struct, frozen=True):
    """What happened in a room; ``gap`` is where to ask for what happened before, if that is missing."""

    room_id: str
    events: list[RoomEvent]
    gap: str = ""


class Batch(Struct, frozen=True):
    """What happened up to a position."""

    position: str
    news: list[News]
    invitations: list[Invitation]


class Connection:
    """Speaks to the homeserver through nio. ``folder`` has the keys of encrypted rooms."""

    def __init__(self, settings: MatrixSettings, folder: Path) -> None:
        if settings.encryption and not ENCRYPTION_ENABLED:
            raise Refused(f"Encrypted rooms need another library: `{install_command('matrix-e2e')}` adds it.")
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
        self.marks = Marks(self._client, settings)

    @property
    def user_id(self) -> str:
        """Who we are; known when we are logged in."""
        return str(self._client.user_id)

    async def close(self) -> None:
        """Hang up and let go of the keys; the next call dials again and opens them."""
        await self._client.close()
        if self._client.store is not None:
            self._client.store.database.close()

    async def log_in(self, password: str) -> Login:
        """Log in as a new device; raises `BadCredentials` where the homeserver does not know us."""
        try:
            answer = await self._ask(self._client.login(password, device_name=self._settings.device_name))
        except PlatformError as error:
            raise login_failure(error) from error
        return Login(self._settings.homeserver, answer.user_id, answer.device_id, answer.access_token)

    async def restore(self, token: str) -> Login:
        """Go on with a login; raises `BadCredentials` where it has ended."""
        self._client.access_token = token
        answer = await self._ask(self._client.whoami())
        login = Login(self._settings.homeserver, answer.user_id, answer.device_id or "", token)
        self._client.user_id, self._client.device_id = login.user_id, login.device_id
        if self._settings.encryption:
            self._client.load_store()
        return login

    async def greet(self) -> None:
        """Make sure that the homeserver answers and knows us, before it is given long for a long answer."""
        await self._ask(self._client.whoami())

    async def own_name(self) -> str:
        """Return the name that people see."""
        try:
            answer = await self._ask(self._client.get_displayname(self.user_id))
        except Rejected:
            return ""
        return answer.displayname or ""

    async def sync(self, since: str, *, anew: bool) -> Batch:
        """Wait for what happens after a position; ``anew`` also learns what all rooms are like, and does not wait."""
        if anew:
            self._client.next_batch = ""  # or nio would take an answer that it has seen for no news at all
        poll = timedelta() if anew else self._settings.poll
        asked = self._client.sync(
            int(poll.total_seconds() * 1000), _FILTER, since=since or None, full_state=anew, set_presence="offline"
        )
        answer = await self._ask(asked, patience=poll + (_FIRST_SYNC if anew else self._settings.patience))
        if self._settings.encryption:
            await self._look_after_keys()
        joined = answer.rooms.join.items()
        news = [News(room_id, self._events(info.timeline.events), _gap(info.timeline)) for room_id, info in joined]
        invitations = [self._invitation(room_id, info.invite_state) for room_id, info in answer.rooms.invite.items()]
        return Batch(answer.next_batch, news, invitations)

    async def before(self, room_id: str, start: str, end: str) -> tuple[list[RoomEvent], str]:
        """Return a page of what happened before ``start``, newest first, and where the next page begins."""
        answer = await self._ask(
            self._client.room_messages(room_id, start, end or None, limit=100, message_filter={"types": _TYPES})
        )
        return self._events(answer.chunk), answer.end or ""

    async def event(self, room_id: str, event_id: str) -> RoomEvent | None:
        """Return one event; ``None`` where there is no such event for us."""
        found = self._recent.get(event_id) or await self._ask_for_event(room_id, event_id)
        if found is not None:
            self._recent.add(found)
        return found

    async def _ask_for_event(self, room_id: str, event_id: str) -> RoomEvent | None:
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

    def rooms(self, *room_ids: str) -> list[Room]:
        """Return what is known of these rooms, or of all in which we are."""
        return [self._room(room_id) for room_id in room_ids or self._client.rooms]

    def _room(self, room_id: str) -> Room:
        known = self._client.rooms.get(room_id)
        if known is None:
            return Room(room_id)
        people = {user_id: user.display_name or "" for user_id, user in known.users.items()}
        return Room(room_id, max(len(known.users), known.member_count or 0), known.display_name or "", people)

    async def is_encrypted(self, room_id: str) -> bool:
        """Tell whether what is said in a room is to be encrypted."""
        known = self._client.rooms.get(room_id)
        if known is not None:
            return bool(known.encrypted)
        if room_id not in self._encrypted:
            try:
                await self._ask(self._client.room_get_state_event(room_id, "m.room.encryption"))
                self._encrypted[room_id] = True
            except Rejected:
                self._encrypted[room_id] = False
        return self._encrypted[room_id]

    async def post(self, room_id: str, kind: str, content: dict[str, Any], transaction: str) -> str:
        """Post an event, once for each transaction, and return its id."""
        if self._settings.encryption and room_id not in self._client.rooms:
            raise Unreachable("the rooms are not known yet; without them nothing can be encrypted")
        sent = self._client.room_send(room_id, kind, content, transaction, ignore_unverified_devices=True)
        answer = await self._ask(sent)
        event_id = str(answer.event_id)
        self._recent.add(RoomEvent(type=kind, event_id=event_id, sender=self.user_id, content=content))
        return event_id

    async def join(self, room_id: str) -> None:
        """Accept an invitation."""
        await self._ask(self._client.join(room_id))

    async def show_typing(self, room_id: str, span: timedelta) -> None:
        """Show for a while that we write."""
        await self._ask(self._client.room_typing(room_id, True, int(span.total_seconds() * 1000)))

    async def mark_read(self, room_id: str, event_id: str) -> None:
        """Show how far we have read."""
        await self._ask(self._client.room_read_markers(room_id, event_id, event_id))

    async def _ask(self, call: Awaitable[Any], *, patience: timedelta | None = None) -> Any:
        return await ask(call, patience or self._settings.patience)

    async def _look_after_keys(self) -> None:
        """Do what the keys of encrypted rooms need between two syncs."""
        client = self._client
        if client.outgoing_to_device_messages:
            await self._ask(_all(client.send_to_device_messages()))
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
                log.warning("a message of %s in %s is encrypted and cannot be read", one.sender, one.room_id)
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


async def _all(answers: Awaitable[list[Any]]) -> Any:
    """Return the first refusal among several answers, or nothing."""
    return next((one for one in await answers if isinstance(one, nio.ErrorResponse)), None)


def _gap(timeline: Any) -> str:
    return (timeline.prev_batch or "") if timeline.limited else ""

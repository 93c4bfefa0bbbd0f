"""State of an account: its login and read position, its rooms as far as we use them, and pending invitations."""

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from talaria.core.errors import Rejected
from talaria.platforms.matrix.events import RoomEvent
from talaria.platforms.matrix.incoming import RoomInfo

_MOST_NAMES = 5
_MOST_PENDING = 100
log = logging.getLogger(__name__)


class ValueStore(Protocol):
    """A small stored value, for example the read position."""

    async def load(self) -> str:
        """Return the last value; empty the first time."""

    async def save(self, token: str) -> None:
        """Replace the value durably."""


class MemoryValueStore:
    """A value in memory."""

    def __init__(self) -> None:
        self._value = ""

    async def load(self) -> str:
        """Return the last value; empty the first time."""
        return self._value

    async def save(self, token: str) -> None:
        """Replace the value."""
        self._value = token


class Login(Struct, frozen=True):
    """A login, valid until it is revoked; ``device_id`` is the homeserver's name of this installation."""

    homeserver: str
    user_id: str
    device_id: str
    token: str


class LoginFile:
    """The login of an account, in a file that only its owner may read."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "login.json"

    def load(self, homeserver: str, user: str) -> Login | None:
        """Return the login of this account, ``@user:server`` or ``user``; ``None`` if there is none."""
        try:
            login = msgspec.json.decode(self._path.read_bytes(), type=Login)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None
        user_names = {login.user_id, login.user_id[1:].partition(":")[0]}
        return login if login.homeserver == homeserver and user in user_names else None

    def save(self, login: Login) -> None:
        """Save a login."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".draft")
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(msgspec.json.encode(login))
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self._path)


class RoomState:
    """Name, members and encryption of a room, from its state events, oldest first."""

    def __init__(self) -> None:
        self.encrypted = False
        self._name = ""
        self._alias = ""
        self._people: dict[str, str] = {}

    def apply(self, events: Iterable[RoomEvent]) -> None:
        """Apply the state events among these."""
        for event in events:
            if event.state_key is None:
                continue
            match event.type:
                case "m.room.name":
                    self._name = _get_text(event, "name")
                case "m.room.canonical_alias":
                    self._alias = _get_text(event, "alias")
                case "m.room.encryption":
                    self.encrypted = True  # can't be turned off
                case "m.room.member" if event.content.get("membership") in ("join", "invite"):
                    self._people[event.state_key] = _get_text(event, "displayname")
                case "m.room.member":
                    self._people.pop(event.state_key, None)

    def describe(self, room_id: str, user_id: str) -> RoomInfo:
        """Return what is known of the room; a room without a name is called after its other members."""
        name = self._name or self._alias or self._format_member_names(user_id)
        return RoomInfo(room_id, len(self._people), name, self._people)

    def _format_member_names(self, user_id: str) -> str:
        counts = Counter(self._people.values())
        names = sorted(
            f"{name} ({one})" if counts[name] > 1 else name
            for one, name in ((one, name or one) for one, name in self._people.items() if one != user_id)
        )
        if len(names) > _MOST_NAMES:
            others = len(names) - _MOST_NAMES
            names = [*names[:_MOST_NAMES], f"{others} other{'s' if others > 1 else ''}"]
        return _join_names(names) or "Empty room"


class Invitation(Struct, frozen=True):
    """An invitation to a room; ``direct`` for a private chat."""

    room_id: str
    inviter: str
    direct: bool = False


AcceptsInvitation = Callable[[Invitation], Awaitable[bool]]
_decode = msgspec.json.Decoder(list[Invitation]).decode


class Invitations:
    """Pending invitations. They are stored, because a homeserver reports each once."""

    def __init__(self, welcome: AcceptsInvitation, store: ValueStore, pause: timedelta) -> None:
        self._accepts = welcome
        self._store = store
        self._pause = pause.total_seconds()
        self._pending: dict[str, Invitation] = {}
        self._next_check = 0.0

    async def load(self) -> None:
        """Load the pending ones."""
        try:
            self._pending = {one.room_id: one for one in _decode(await self._store.load() or "[]")}
        except msgspec.MsgspecError:
            self._pending = {}

    async def process(self, received: list[Invitation], join: Callable[[str], Awaitable[None]]) -> None:
        """Join the rooms we may join; pending invitations are checked again from time to time."""
        now = asyncio.get_running_loop().time()
        before = dict(self._pending)
        candidates = list(received)
        if now >= self._next_check:
            self._next_check = now + self._pause
            candidates += [one for one in before.values() if one.room_id not in {new.room_id for new in received}]
        for invitation in candidates:
            if await self._accepts(invitation):
                self._pending.pop(invitation.room_id, None)
                await self._accept(invitation, join)
            elif invitation.room_id not in self._pending:
                log.info("ignored an invitation from %s to %s", invitation.inviter, invitation.room_id)
                self._pending[invitation.room_id] = invitation
        while len(self._pending) > _MOST_PENDING:
            del self._pending[next(iter(self._pending))]
        if self._pending != before:
            await self._store.save(msgspec.json.encode(list(self._pending.values())).decode())

    async def _accept(self, invitation: Invitation, join: Callable[[str], Awaitable[None]]) -> None:
        try:
            await join(invitation.room_id)
        except Rejected as error:
            log.warning("couldn't accept an invitation from %s: %s", invitation.inviter, error)


def _join_names(names: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


def _get_text(event: RoomEvent, name: str) -> str:
    """Return a text of an event's content, whose sender may have written anything there."""
    value = event.content.get(name)
    return value if isinstance(value, str) else ""

"""What arrives from a network: allowed or not, then into the inbox of its conversation, once."""

import logging
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from msgspec import Struct

from talaria.commands.command import Author
from talaria.commands.using import is_command
from talaria.contracts.platform import Attachment, Incoming, Platform
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import NewSession
from talaria.core.addresses import Route
from talaria.core.errors import PlatformError, TalariaError
from talaria.core.ids import SessionId
from talaria.core.messages import File, Image, Message, Part, Text
from talaria.gateway.doorman import Doorman, Guest
from talaria.gateway.room import Room
from talaria.gateway.rooms import Rooms
from talaria.sessions.lane import arrival
from talaria.sessions.turn_log import STEERING

log = logging.getLogger(__name__)

COMMAND = "command"
_MOMENT = timedelta(seconds=5)
_PICTURES = {"picture", "sticker"}


class Admission(Struct, frozen=True):
    """What became of something that arrived."""

    session_id: SessionId
    item: int
    notice: str = ""


class Intake:
    """Takes what arrives from one network. ``media`` is where files of messages are kept."""

    def __init__(
        self,
        store: Store,
        platform: Platform,
        doorman: Callable[[], Doorman],
        rooms: Rooms,
        media: Path,
        busy: Callable[[], str],
    ) -> None:
        self._store = store
        self._platform = platform
        self._doorman = doorman
        self._rooms = rooms
        self._media = media
        self._busy = busy

    async def take(self, incoming: Incoming) -> str:
        """Take one thing in; when this returns it is kept. Returns what a stranger is to be told."""
        guest = await self._store.write(lambda tx: self._doorman().admit(tx, incoming))
        if isinstance(guest, str):
            return guest
        room = self._rooms.find(guest.key)
        if self._answers(room, incoming) or incoming.reaction:  # a mark that answers nothing says nothing
            return ""
        parts = await self._parts(incoming)
        kind = COMMAND if is_command(incoming.text) else "message"
        if kind == "message" and room is not None and room.seat.busy and self._busy() == "steer":
            kind = STEERING
        admission = await self._store.write(lambda tx: self._admit(tx, guest, incoming, parts, kind))
        if admission is None:
            return ""
        # Opening a room takes a while; others are heard meanwhile.
        self._rooms.at(guest.key, incoming.address).start(self._see_to(guest, incoming, admission, kind))
        return ""

    async def _see_to(self, guest: Guest, incoming: Incoming, admission: Admission, kind: str) -> None:
        """Act on what was kept; where that fails it waits in the inbox, and is taken up again."""
        try:
            room = await self._rooms.enter(guest.key, incoming.address, admission.session_id)
            self._stir(room, guest, incoming, admission, kind)
        except TalariaError as error:
            log.warning("%s: a message waits: %s", self._platform.name, error)
        except Exception:  # a bug keeps one conversation from being opened, and no other
            log.exception("%s: a conversation was not opened", self._platform.name)

    def _stir(self, room: Room, guest: Guest, incoming: Incoming, admission: Admission, kind: str) -> None:
        room.spoken_to(incoming.sender.id, owner=guest.is_owner)
        if admission.notice:
            room.show(admission.notice)
        if kind == COMMAND:
            author = Author(incoming.sender.name or incoming.sender.id, guest.is_owner)
            room.start(room.use(incoming.text, author, guest.commands))
            return
        if self._busy() == "interrupt":
            room.seat.chat.conversation.interrupt(admission.item)
        room.seat.chat.conversation.nudge(steered=kind == STEERING)

    def _answers(self, room: Room | None, incoming: Incoming) -> bool:
        """Tell whether this was the answer to a question; a button is never anything else, however old it is."""
        if room is None:
            return bool(incoming.button)
        if incoming.button:
            room.asking.press(incoming.button, incoming.sender.id)
            return True
        return bool(incoming.text) and room.asking.write(incoming.text, incoming.sender.id)

    def _admit(
        self, tx: Transaction, guest: Guest, incoming: Incoming, parts: tuple[Part, ...], kind: str
    ) -> Admission | None:
        """Put it into the inbox of its conversation, which is begun if there is none; ``None`` for what came before."""
        session_id, notice = self._session(tx, guest, incoming)
        sender = incoming.sender
        route = Route(
            incoming.address,
            incoming.message_id,
            user_id=sender.id,
            user_name=sender.name,
            chat_name=incoming.chat_name,
        )
        message = Message(
            role="user",
            parts=parts,
            at=incoming.at,
            author=incoming.sender.name,
            platform_message_id=incoming.message_id or None,
        )
        came = arrival(session_id, self._platform.name, incoming.external_id, message, kind=kind, route=route)
        item = tx.inbox.add(came)
        if item is None:
            return None
        if kind == COMMAND:
            tx.inbox.settle([item.id])
        return Admission(session_id, item.id, notice)

    def _session(self, tx: Transaction, guest: Guest, incoming: Incoming) -> tuple[SessionId, str]:
        session_id, notice = self._bound(tx, guest, incoming)
        if session_id is None:
            # Whoever else begins one here waits at this row until this is committed, and then finds it.
            lock = tx.leases.acquire(f"place:{guest.key}", _MOMENT)
            session_id, notice = self._bound(tx, guest, incoming)
            session_id = session_id or self._begin(tx, guest, incoming)
            if lock is not None:
                tx.leases.release(lock)
        return session_id, notice

    def _bound(self, tx: Transaction, guest: Guest, incoming: Incoming) -> tuple[SessionId | None, str]:
        """Return the conversation of a place; none, and what to say about it, where another is to begin."""
        bound = tx.bindings.get(guest.key)
        if bound is None or tx.sessions.get(bound.session_id) is None:
            return None, ""
        notice = self._doorman().begins_anew(tx, bound.session_id, incoming.at)
        return None if notice else bound.session_id, notice

    def _begin(self, tx: Transaction, guest: Guest, incoming: Incoming) -> SessionId:
        made = tx.sessions.create(NewSession(source=self._platform.name, owner=guest.owner, audience=guest.audience))
        tx.bindings.bind(guest.key, made.id, incoming.address)
        return made.id

    async def _parts(self, incoming: Incoming) -> tuple[Part, ...]:
        words = [Text(incoming.text)] if incoming.text else []
        files = [await self._file(attachment) for attachment in incoming.attachments]
        return (*words, *files) or (Text("(an empty message)"),)

    async def _file(self, attachment: Attachment) -> Part:
        try:
            file = await self._platform.fetch(attachment, self._media)
        except PlatformError as error:
            log.warning("a file was not fetched: %s", error)
            return Text(f"(A file came along that could not be fetched: {attachment.name or attachment.kind}.)")
        kind = attachment.media_type or "application/octet-stream"
        if attachment.kind in _PICTURES and kind.startswith("image/"):
            return Image(str(file), kind)
        return File(str(file), attachment.name or file.name, kind)

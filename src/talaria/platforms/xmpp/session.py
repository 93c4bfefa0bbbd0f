"""One connection with its rooms: joins them, posts messages, and queues what arrives."""

import asyncio
import logging
from datetime import UTC, datetime
from typing import TypeVar
from xml.etree.ElementTree import Element

from msgspec import Struct

from talaria.core.addresses import Address
from talaria.core.aio import run_with
from talaria.core.errors import PlatformError, Rejected
from talaria.platforms.xmpp.archive import ArchiveReader
from talaria.platforms.xmpp.connection import XmppConnection, error_condition, to_error
from talaria.platforms.xmpp.settings import XmppSettings
from talaria.platforms.xmpp.wire import (
    MAM,
    MUC_USER,
    XmppMessage,
    bare,
    carbons_request,
    has_carbon,
    read_message,
    unwrap_carbon,
)
from talaria.platforms.xmpp.xml_stream import CLIENT, make

_MUC = "http://jabber.org/protocol/muc"
_INFO = "http://jabber.org/protocol/disco#info"
_PING = "urn:xmpp:ping"
_OUTSIDE = ("not-acceptable", "not-allowed", "bad-request")  # answers to a ping of ourselves through the room
_MOST_NICKS = 9
_MOST_PENDING = 5000  # messages that wait; beyond it, the connection is given up, and they come from the archive
_MOST_LOGGED = 500  # messages of a chat

T = TypeVar("T")
log = logging.getLogger(__name__)


class LoggedMessage(Struct, frozen=True):
    """A message that others can refer to: its author, its id in the archive, and whether it is ours."""

    author: str
    archive_id: str
    is_ours: bool


class CatchUp(Struct, frozen=True):
    """A request to read what is new in an archive."""

    archive: str


class Subscription(Struct, frozen=True):
    """A request of a person to see when we are online."""

    jid: str


Event = XmppMessage | CatchUp | Subscription


class RoomState:
    """A room: our nick there, who is in it, and how it is configured."""

    def __init__(self, jid: str, nick: str) -> None:
        self.jid = jid
        self.nick = nick
        self.occupants: dict[str, str] = {}  # real addresses by nick, as far as the room shows them
        self.is_joined = False
        self.has_archive = False
        self.is_open = False  # about the addresses of its occupants
        self.entered: asyncio.Future[bool] | None = None  # whether our nick was free


class XmppSession:
    """A session of our account. ``events`` is what arrives once `receive` was called; before, it only sends."""

    def __init__(self, settings: XmppSettings) -> None:
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.rooms = {jid: RoomState(jid, settings.nick) for jid in settings.rooms}
        self.connection = XmppConnection(settings, self._take)
        self.archives = ArchiveReader(self.connection, settings.jid)
        self._settings = settings
        self._is_receiving = False
        self._logs: dict[str, dict[str, LoggedMessage]] = {}
        self._posting: dict[str, asyncio.Future[Element]] = {}
        self._joining = asyncio.Lock()
        self._keeping: asyncio.Future[None] | None = None

    async def open(self) -> None:
        """Connect; raises `Rejected` if the server has no archive, without which messages would be lost."""
        try:
            await self.connection.open()
            await self._check_archive()
        except BaseException:
            await self.connection.close()
            raise

    async def receive(self) -> None:
        """Go online, join the rooms, and queue what arrives from now on."""
        self._is_receiving = True
        await self.connection.request("set", carbons_request())
        await self.connection.send(make(CLIENT, "presence"))
        self.events.put_nowait(CatchUp(self._settings.jid))
        for room in self.rooms:
            try:
                await self.join(room)
            except Rejected as error:
                log.warning("%s: can't join %s: %s", self._settings.name, room, error)
        self._keeping = asyncio.ensure_future(self._keep_rooms())

    async def join(self, jid: str) -> RoomState:
        """Join a room if we aren't there; raises `Rejected` if that is refused."""
        room = self.rooms.get(jid)
        if room is None:
            raise Rejected(f"{jid} is not one of the rooms in platforms.{self._settings.name}.options.rooms")
        async with self._joining:
            for attempt in range(_MOST_NICKS):
                if room.is_joined:
                    return room
                room.nick = self._settings.nick + "_" * attempt
                if await self._enter(room):
                    features = await self._find_features(jid)
                    room.has_archive, room.is_open = MAM in features, "muc_nonanonymous" in features
                    if not room.has_archive:
                        log.warning(
                            "%s has no message archive: messages sent while the gateway is offline are lost", jid
                        )
                    elif self._is_receiving:
                        self.events.put_nowait(CatchUp(jid))
        if not room.is_joined:
            raise Rejected(f"the nick {self._settings.nick} and similar ones are taken in {jid}")
        return room

    async def post(self, to: Address, stanza: Element) -> None:
        """Send a message, and return when the server or room has taken it."""
        message_id = stanza.get("id", "")
        answered: asyncio.Future[Element] = asyncio.get_running_loop().create_future()
        self._posting[message_id] = answered
        try:
            await self.connection.send(stanza)
            if to.chat_type != "private":
                await self._wait_for_answer(answered, "the room doesn't answer")
            else:
                await self.connection.ping()
        finally:
            del self._posting[message_id]
        if answered.done() and (answer := answered.result()).get("type") == "error":
            raise to_error(answer)

    async def log_of(self, to: Address) -> dict[str, LoggedMessage]:
        """Return the latest messages of a chat by their ids, read from the archive at first."""
        chat = to.chat_id
        if chat not in self._logs:
            logged: dict[str, LoggedMessage] = {}
            if to.chat_type == "private":
                page = await self.archives.latest(self._settings.jid, person=chat)
            elif (room := await self.join(chat)).has_archive:
                page = await self.archives.latest(chat, is_open=room.is_open)
            else:
                page = None
            self._logs.setdefault(chat, logged)
            for message in page.messages if page else ():
                self.record(message, chat)
        return self._logs[chat]

    def record(self, message: XmppMessage, chat: str) -> None:
        """Add a message to the log of its chat, if that is in use."""
        logged = self._logs.get(chat)
        if logged is None or not message.message_id:
            return
        logged[message.message_id] = LoggedMessage(message.sender, message.archive_id, self.is_ours(message))
        while len(logged) > _MOST_LOGGED:
            del logged[next(iter(logged))]

    def is_ours(self, message: XmppMessage) -> bool:
        """Return whether we wrote a message. In a room the address counts, and the nick only without one."""
        if message.kind != "groupchat":
            return message.chat == self._settings.jid
        if message.real_jid:
            return message.real_jid == self._settings.jid
        room = self.rooms.get(message.chat)
        return room is not None and message.nick == room.nick

    async def close(self) -> None:
        """Disconnect."""
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        await self.connection.close()

    async def _check_archive(self) -> None:
        if MAM not in await self._find_features(self._settings.jid):
            where = self._settings.domain
            raise Rejected(
                f"the XMPP server of {where} has no message archive (XEP-0313), without which messages get lost"
            )

    async def _enter(self, room: RoomState) -> bool:
        """Enter a room, and return whether our nick was free."""
        room.entered = asyncio.get_running_loop().create_future()
        password = self._settings.room_passwords.get(room.jid, "")
        entry = make(_MUC, "x", None, make(_MUC, "history", {"maxstanzas": "0"}))
        if password:
            entry.append(make(_MUC, "password", None, password))
        await self.connection.send(make(CLIENT, "presence", {"to": f"{room.jid}/{room.nick}"}, entry))
        return await self._wait_for_answer(room.entered, f"the room {room.jid} doesn't answer")

    async def _wait_for_answer(self, answered: asyncio.Future[T], problem: str) -> T:
        """Return an answer; raises `Unreachable` if none comes in time or the connection fails."""
        try:
            async with asyncio.timeout(self._settings.patience.total_seconds()):
                return await run_with(_await_result(answered), self.connection.watch())
        except TimeoutError as error:
            raise self.connection.fail(problem) from error

    async def _keep_rooms(self) -> None:
        """Return to rooms that we have lost, also those that have forgotten us (XEP-0410)."""
        while True:
            await asyncio.sleep(self._settings.silence.total_seconds() / 2)
            for room in self.rooms.values():
                try:
                    if room.is_joined and not await self._is_inside(room):
                        room.is_joined = False
                    await self.join(room.jid)
                except Rejected as error:
                    log.warning("%s: can't return to %s: %s", self._settings.name, room.jid, error)
                except PlatformError:
                    return  # the connection has failed, which the receiver reports

    async def _is_inside(self, room: RoomState) -> bool:
        try:
            await self.connection.request("get", make(_PING, "ping"), f"{room.jid}/{room.nick}")
        except Rejected as error:
            return not any(condition in str(error) for condition in _OUTSIDE)
        return True

    async def _find_features(self, jid: str) -> set[str]:
        info = await self.connection.request("get", make(_INFO, "query"), jid)
        return {one.get("var", "") for one in info.iter(f"{{{_INFO}}}feature")}

    def _take(self, stanza: Element) -> None:
        if stanza.tag == f"{{{CLIENT}}}presence":
            self._take_presence(stanza)
        elif stanza.tag == f"{{{CLIENT}}}message" and not self.archives.collect(stanza):
            self._take_message(stanza)

    def _take_message(self, stanza: Element) -> None:
        if stanza.get("type") == "error":
            answered = self._posting.get(stanza.get("id", ""))
            if answered is not None and not answered.done():
                answered.set_result(stanza)
            else:
                log.info("%s: a message wasn't delivered: %s", self._settings.name, to_error(stanza))
            return
        if has_carbon(stanza):
            unwrapped = unwrap_carbon(stanza, self._settings.jid)
            if unwrapped is None or unwrapped[1]:
                return
            stanza = unwrapped[0]
        chat = bare(stanza.get("from", ""))
        room = self.rooms.get(chat)
        if stanza.get("type") == "groupchat":
            if room is not None and room.is_joined:
                self._take_room_message(stanza, room)
        elif room is not None:
            log.info("%s: a private message in %s is ignored: its nick proves nothing", self._settings.name, chat)
        elif self._is_receiving:
            self._queue_event(read_message(stanza, self._settings.jid, datetime.now(UTC)))

    def _take_room_message(self, stanza: Element, room: RoomState) -> None:
        nick = stanza.get("from", "").partition("/")[2]
        message = read_message(stanza, room.jid, datetime.now(UTC), real_jid=room.occupants.get(nick, ""))
        if not room.has_archive and message.is_delayed:
            return  # history, which nobody waits for
        self.record(message, room.jid)
        answered = self._posting.get(message.id)
        if answered is not None and self.is_ours(message) and not answered.done():
            answered.set_result(stanza)
        if self._is_receiving:
            self._queue_event(message)

    def _queue_event(self, message: XmppMessage) -> None:
        if self.events.qsize() > _MOST_PENDING:
            self.connection.fail("too many messages are waiting to be processed")
        else:
            self.events.put_nowait(message)

    def _take_presence(self, stanza: Element) -> None:
        jid, kind = stanza.get("from", ""), stanza.get("type", "")
        room = self.rooms.get(bare(jid))
        if room is None:
            if kind == "subscribe" and self._is_receiving:
                self.events.put_nowait(Subscription(bare(jid)))
            return
        if kind == "error":
            if room.entered is not None and not room.entered.done():
                if error_condition(stanza) == "conflict":
                    room.entered.set_result(False)
                else:
                    room.entered.set_exception(to_error(stanza))
            return
        details = stanza.find(f"{{{MUC_USER}}}x")
        codes = {one.get("code") for one in details.iter(f"{{{MUC_USER}}}status")} if details is not None else set()
        item = details.find(f"{{{MUC_USER}}}item") if details is not None else None
        self._follow(room, jid.partition("/")[2], kind, codes, item.get("jid", "") if item is not None else "")

    def _follow(self, room: RoomState, nick: str, kind: str, codes: set[str | None], real_jid: str) -> None:
        """Follow who is in a room; status 110 is about ourselves."""
        if kind == "unavailable":
            room.occupants.pop(nick, None)
            if "110" in codes and "303" not in codes:
                log.warning("%s: we are out of %s", self._settings.name, room.jid)
                room.is_joined = False
                room.occupants.clear()
            return
        if real_jid:
            room.occupants[nick] = bare(real_jid)
        else:
            room.occupants.pop(nick, None)
        if "110" in codes:
            room.nick = nick
            room.is_joined = True
            if room.entered is not None and not room.entered.done():
                room.entered.set_result(True)


async def _await_result(answered: asyncio.Future[T]) -> T:
    return await answered

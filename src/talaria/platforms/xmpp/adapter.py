"""The XMPP adapter: receives direct chats and rooms, reads missed messages from archives, and sends replies."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree.ElementTree import Element

from msgspec import Struct, structs

from talaria.contracts.platform import (
    Attachment,
    Content,
    Incoming,
    MessageRef,
    Platform,
    PlatformAccount,
    PlatformCapabilities,
    PlatformDefaults,
    Sender,
)
from talaria.contracts.store import Store
from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address
from talaria.core.aio import run_with
from talaria.core.errors import PlatformError, Refused, Rejected
from talaria.core.ids import new_id
from talaria.core.messages import File, Image
from talaria.platforms.content import safe_file_name, save_file
from talaria.platforms.xmpp.archive import ArchivePosition
from talaria.platforms.xmpp.session import CatchUp, Subscription, XmppSession
from talaria.platforms.xmpp.settings import XmppSettings, read_settings
from talaria.platforms.xmpp.upload import FileTransfer
from talaria.platforms.xmpp.wire import (
    TEXT_LIMIT,
    XmppMessage,
    check_text,
    correction_element,
    external_id,
    file_element,
    make_message_id,
    reactions_message,
    reply_element,
    text_message,
    to_direct,
    to_group,
    typing_message,
)
from talaria.platforms.xmpp.xml_stream import CLIENT, make

XMPP_POSITION = NamedValue("xmpp_position", ArchivePosition)  # by account and archive
_MOST_CACHED = 1000
_NO_OMEMO = "I can't read encrypted messages. Turn off OMEMO in this chat, and send it again."

log = logging.getLogger(__name__)
MayJoin = Callable[[Address, Sender], Awaitable[bool]]


class _ReadFile(Struct, frozen=True):
    name: str
    data: bytes
    media_type: str


class Xmpp(PlatformDefaults):
    """One account on one server; the creator closes it."""

    def __init__(
        self, settings: XmppSettings, store: Store, commands: Collection[str] = (), may_join: MayJoin | None = None
    ) -> None:
        self.name = settings.name
        self.abilities = PlatformCapabilities(
            text_limit=TEXT_LIMIT,
            edits=True,
            edit_pace=timedelta(seconds=3),  # each edit is a message of its own, which the archive keeps
            typing=True,
            reactions=True,
            servers=True,
            idempotent=True,
            exclusive=True,
            file_limit=settings.file_limit,
        )
        self._settings = settings
        self._store = store
        self._commands = frozenset(commands)
        self._may_join = may_join
        self._files = FileTransfer(settings)
        self._session: XmppSession | None = None
        self._opening = asyncio.Lock()
        self._confirmed: dict[str, None] = {}  # ids of updates that were taken, oldest first
        self._notified: set[str] = set()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Log in, join the rooms, and yield missed messages, then new ones."""
        session = await self._open()
        try:
            await self._find_position(session, self._settings.jid)
            await session.receive()
            for room in session.rooms.values():
                if room.is_joined and room.has_archive:
                    await self._find_position(session, room.jid)
            async with aclosing(self._receive_updates(session)) as updates:
                yield updates
        finally:
            await session.close()

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Send a text, then each file as a message of its own; messages in the archive aren't sent again."""
        files = [await asyncio.to_thread(self._read, file) for file in content.files]
        text = check_text(content.text) if content.text.strip() or not files else ""
        session = await self._open()
        if files:
            await self._check_sizes(session, files)
        log_of_chat = await session.log_of(to)
        ids = []
        if text:
            ids.append(make_message_id(to.chat_id, key))
            if ids[0] not in log_of_chat:
                answered = log_of_chat.get(content.reply_to)
                extras = []
                if answered is not None:
                    target = answered.archive_id if to.chat_type != "private" else content.reply_to
                    extras = [reply_element(target, answered.author)]
                await self._post(session, to, text_message(to.chat_id, _choose_message_type(to), ids[0], text, *extras))
        for number, file in enumerate(files):
            ids.append(make_message_id(to.chat_id, f"{key}:file{number}"))
            if ids[-1] not in log_of_chat:
                url = await self._files.upload(session.connection, file.name, file.data, file.media_type)
                stanza = text_message(to.chat_id, _choose_message_type(to), ids[-1], url, file_element(url))
                await self._post(session, to, stanza)
        return MessageRef(to, ids[0])

    async def edit(self, ref: MessageRef, content: Content) -> None:
        """Correct a message; clients that don't know corrections show a second message."""
        text = check_text(content.text)
        session = await self._open()
        known = (await session.log_of(ref.address)).get(ref.message_id)
        if known is None or not known.is_ours:
            raise Rejected("only messages of ours that are not too old can be edited")
        extras = (correction_element(ref.message_id),)
        stanza = text_message(ref.address.chat_id, _choose_message_type(ref.address), new_id(), text, *extras)
        await session.post(ref.address, stanza)

    async def show_typing(self, to: Address) -> None:
        """Show that we are typing."""
        session = await self._open()
        if to.chat_type == "private" or session.rooms[to.chat_id].is_joined:
            await session.connection.send(typing_message(to.chat_id, _choose_message_type(to)))

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Replace our reaction to a message; an empty one removes it."""
        session = await self._open()
        known = (await session.log_of(ref.address)).get(ref.message_id)
        if known is None:
            raise Rejected("the message is not among the latest of its chat")
        is_private = ref.address.chat_type == "private"
        target = ref.message_id if is_private else known.archive_id
        stanza = reactions_message(ref.address.chat_id, _choose_message_type(ref.address), target, emoji)
        stanza.set("id", new_id())
        await session.post(ref.address, stanza)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Download a file."""
        session = await self._open()
        data = await self._files.download(session.connection, attachment.reference)
        return await asyncio.to_thread(save_file, data, attachment.name, folder, attachment.media_type)

    async def close(self) -> None:
        """Disconnect."""
        if self._session is not None:
            await self._session.close()
        await self._files.close()

    async def _open(self) -> XmppSession:
        """Return the session, opened if needed."""
        async with self._opening:
            if self._session is None or not self._session.connection.is_open:
                if self._session is not None:
                    await self._session.close()
                session = XmppSession(self._settings)
                await session.open()
                self._session = session
            return self._session

    async def _receive_updates(self, session: XmppSession) -> AsyncGenerator[Incoming, None]:
        while True:
            match await run_with(session.events.get(), session.connection.watch()):
                case CatchUp(archive=archive):
                    async with aclosing(self._read_missed(session, archive)) as missed:
                        async for incoming in missed:
                            yield incoming
                case Subscription(jid=jid):
                    await self._answer_subscription(session, jid)
                case XmppMessage() as message:
                    new = await self._read_new(session, message)
                    if new is not None:
                        yield new
                        await self._confirm(session, message)

    async def _read_missed(self, session: XmppSession, archive: str) -> AsyncGenerator[Incoming, None]:
        """Yield what an archive has after the stored position."""
        room = session.rooms.get(archive)
        is_open = room.is_open if room else False
        position = await self._find_position(session, archive)
        while True:
            page = await session.archives.after(archive, position, is_open=is_open)
            for message in page.messages:
                incoming = await self._read_new(session, message)
                if incoming is not None:
                    yield incoming
                    await self._confirm(session, message)
                position = ArchivePosition(message.archive_id, message.at)
            if page.messages:
                await self._save(archive, position)
            if page.is_last:
                return

    async def _find_position(self, session: XmppSession, archive: str) -> ArchivePosition:
        """Return how far an archive was read; at the very first start, only later messages count."""
        key = f"{self.name}:{self._settings.jid}:{archive}"
        position = await self._store.read(lambda tx: XMPP_POSITION.get(tx, key))
        if position is None:
            newest = (await session.archives.latest(archive, most=1)).messages
            position = ArchivePosition(newest[-1].archive_id, newest[-1].at) if newest else ArchivePosition("", _now())
            await self._save(archive, position)
        return position

    async def _confirm(self, session: XmppSession, message: XmppMessage) -> None:
        """Remember that an update was taken."""
        self._confirmed[external_id(message)] = None
        if len(self._confirmed) > _MOST_CACHED:
            del self._confirmed[next(iter(self._confirmed))]
        archive = message.chat if message.chat in session.rooms else self._settings.jid
        if message.archive_id:
            await self._save(archive, ArchivePosition(message.archive_id, message.at))

    async def _save(self, archive: str, position: ArchivePosition) -> None:
        key = f"{self.name}:{self._settings.jid}:{archive}"
        await self._store.write(lambda tx: XMPP_POSITION.write(tx, key, position))

    async def _read_new(self, session: XmppSession, message: XmppMessage) -> Incoming | None:
        """Return the update for a message; ``None`` for what is ours, not for us, or was received before."""
        if message.kind != "groupchat":
            session.record(message, message.chat)
        if session.is_ours(message) or external_id(message) in self._confirmed:
            return None
        if message.kind == "groupchat":
            return await self._read_group(session, message)
        if message.kind not in ("chat", "normal") or "@" not in message.chat or message.chat in session.rooms:
            return None
        if message.is_encrypted:
            await self._explain_encryption(session, message)
            return None
        if message.is_delayed and not message.archive_id:
            return None  # stored for us while we were away: the archive has it, too
        return to_direct(message, self.name, self._commands)

    async def _read_group(self, session: XmppSession, message: XmppMessage) -> Incoming | None:
        room = session.rooms.get(message.chat)
        if room is None or not message.nick:
            return None
        answers_us = message.reply_author == f"{room.jid}/{room.nick}"
        if message.reactions:  # in a room, they name a message by its id in the archive
            known = (await session.log_of(Address(self.name, room.jid, "group"))).items()
            targets = [one for one, it in known if it.is_ours and it.archive_id == message.reactions_to]
            if not targets:
                return None
            message, answers_us = structs.replace(message, reactions_to=targets[0]), True
        return to_group(message, self.name, room.nick, self._commands, answers_us=answers_us)

    async def _explain_encryption(self, session: XmppSession, message: XmppMessage) -> None:
        if message.chat in self._notified or len(self._notified) >= _MOST_CACHED:
            return
        self._notified.add(message.chat)
        to = Address(self.name, message.chat)
        try:
            await session.post(to, text_message(message.chat, "chat", new_id(), _NO_OMEMO))
        except PlatformError as error:
            log.info("%s: couldn't explain encryption to %s: %s", self.name, message.chat, error)

    async def _answer_subscription(self, session: XmppSession, jid: str) -> None:
        """Let people who may talk to us see that we are online; others stay unanswered, and are asked about again."""
        allowed = self._may_join is not None and await self._may_join(Address(self.name, jid), Sender(jid))
        if allowed:
            await session.connection.send(make(CLIENT, "presence", {"to": jid, "type": "subscribed"}))

    async def _post(self, session: XmppSession, to: Address, stanza: Element) -> None:
        await session.post(to, stanza)
        if to.chat_type == "private":
            sent = XmppMessage(self._settings.jid, "chat", _now(), id=stanza.get("id", ""))
            session.record(sent, to.chat_id)

    async def _check_sizes(self, session: XmppSession, files: Collection[_ReadFile]) -> None:
        limit = (await self._files.find_service(session.connection)).limit
        for file in files:
            if limit and len(file.data) > limit:
                raise Rejected(f"{file.name} has {len(file.data)} bytes, and the limit of the server is {limit}")

    def _read(self, file: File | Image) -> _ReadFile:
        path = Path(file.source)
        name = safe_file_name(getattr(file, "name", "") or path.name, file.media_type)
        try:
            if (size := path.stat().st_size) > self._settings.file_limit:
                raise Rejected(f"{name} has {size} bytes, and the limit is {self._settings.file_limit}")
            return _ReadFile(name, path.read_bytes(), file.media_type)
        except OSError as error:
            raise Rejected(f"{file.source} can't be read: {error.strerror}") from error


def _now() -> datetime:
    return datetime.now(UTC)


def _choose_message_type(to: Address) -> str:
    return "chat" if to.chat_type == "private" else "groupchat"


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the account of a profile."""
    jid, password = account.secret("XMPP_JID"), account.secret("XMPP_PASSWORD")
    if not jid or not password:
        raise Refused("XMPP needs XMPP_JID and XMPP_PASSWORD. Run `talaria setup chat` to enter them.")
    settings = read_settings(account.name, account.options, jid, password)
    platform = Xmpp(settings, account.store, [name for name, _ in account.commands], account.may_join)
    account.closing.push_async_callback(platform.close)
    return platform

"""The Signal adapter: receives and sends messages through signal-cli's daemon."""

import asyncio
import base64
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

from talaria.contracts.platform import (
    Attachment,
    Content,
    Incoming,
    MessageRef,
    Platform,
    PlatformAccount,
    PlatformCapabilities,
    PlatformDefaults,
)
from talaria.contracts.store import Store
from talaria.contracts.values import NamedValue
from talaria.core.addresses import Address
from talaria.core.aio import run_with
from talaria.core.errors import BadCredentials, PlatformError, Refused, Rejected, Unreachable
from talaria.core.messages import File, Image
from talaria.platforms.content import safe_file_name, save_file
from talaria.platforms.received_queue import ReceivedQueue
from talaria.platforms.signal.connection import SignalConnection
from talaria.platforms.signal.settings import SignalSettings, read_settings
from talaria.platforms.signal.wire import (
    TEXT_LIMIT,
    Envelope,
    OwnIdentity,
    chat_params,
    check_results,
    encode_file,
    read_message_id,
    send_params,
    to_address,
    to_incoming,
)

SIGNAL_RECEIVED = NamedValue("signal_received", Envelope)  # by account and time
_MOST_MARKS = 1000
_TIMER_NOTICE = (
    "Messages disappear in this chat, but I store what I answer. Turn off disappearing messages here to talk to me."
)

log = logging.getLogger(__name__)


class Signal(PlatformDefaults):
    """One phone number on one daemon; the creator closes it."""

    def __init__(self, settings: SignalSettings, store: Store) -> None:
        self.name = settings.name
        # No edits: Signal allows ten of a message, too few for a reply that grows.
        self.abilities = PlatformCapabilities(
            text_limit=TEXT_LIMIT,
            text_unit="bytes",
            typing=True,
            reactions=True,
            exclusive=True,
            file_limit=settings.file_limit,
        )
        self._settings = settings
        self._queue = ReceivedQueue(store, SIGNAL_RECEIVED, settings.name)
        self._us = OwnIdentity(settings.account)
        self._connection: SignalConnection | None = None
        self._opening = asyncio.Lock()
        self._marks: dict[str, str] = {}
        self._notified: set[str] = set()

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Connect to the daemon and yield what people write."""
        connection = await self._open()
        try:
            await self._check_account(connection)
            await connection.subscribe()
            async with aclosing(self._receive_updates(connection)) as updates:
                yield updates
        finally:
            await connection.close()

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Send a message, with a quote of the one it answers."""
        files = [await asyncio.to_thread(self._encode, file) for file in content.files]
        patience = self._settings.file_patience if files else self._settings.patience
        connection = await self._open()
        try:
            sent = await connection.call("send", send_params(to, content, files), patience)
        except Rejected:
            await self._check_account(connection)
            raise
        if not isinstance(sent, dict) or not isinstance(sent.get("timestamp"), int):
            raise Unreachable("the answer is not that of signal-cli")
        check_results(sent.get("results") or [])
        return MessageRef(to, f"{self._settings.account}:{sent['timestamp']}")

    async def show_typing(self, to: Address) -> None:
        """Show that we are typing, for some seconds."""
        await (await self._open()).call("sendTyping", chat_params(to))

    async def react(self, ref: MessageRef, emoji: str) -> None:
        """Replace our reaction to a message; an empty one removes it."""
        author, timestamp = read_message_id(ref.message_id)
        previous = self._marks.pop(ref.message_id, "")
        if not emoji and not previous:
            return
        params = {"emoji": emoji or previous, "targetAuthor": author, "targetTimestamp": timestamp, "remove": not emoji}
        await (await self._open()).call("sendReaction", {**chat_params(ref.address), **params})
        if emoji:
            self._marks[ref.message_id] = emoji
            if len(self._marks) > _MOST_MARKS:
                del self._marks[next(iter(self._marks))]

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Get a file from the daemon."""
        connection = await self._open()
        found = await connection.call("getAttachment", {"id": attachment.reference}, self._settings.file_patience)
        data = base64.b64decode(found.get("data", "") if isinstance(found, dict) else "")
        return await asyncio.to_thread(save_file, data, attachment.name, folder, attachment.media_type)

    async def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            await self._connection.close()

    async def _open(self) -> SignalConnection:
        """Return the connection, opened if needed."""
        async with self._opening:
            if self._connection is None or not self._connection.is_open:
                connection = SignalConnection(self._settings, self._queue.add)
                await connection.open()
                self._connection = connection
            return self._connection

    async def _check_account(self, connection: SignalConnection) -> None:
        """Raise `BadCredentials` if the daemon doesn't have our number; one for a single number doesn't say."""
        try:
            accounts = await connection.call("listAccounts", {}, account=False)
        except Rejected:
            return
        numbers = [one.get("number") for one in accounts if isinstance(one, dict)]
        if self._settings.account not in numbers:
            raise BadCredentials("signal-cli has no such number. Register or link it, and restart the daemon")

    async def _receive_updates(self, connection: SignalConnection) -> AsyncGenerator[Incoming, None]:
        while True:
            for key, envelope in await run_with(self._queue.pending(), connection.watch()):
                if await self._may_store(connection, envelope):
                    incoming = to_incoming(envelope, self.name, self._us)
                    if incoming is not None:
                        yield incoming
                await self._queue.remove(key)

    async def _may_store(self, connection: SignalConnection, envelope: Envelope) -> bool:
        """Return whether a message may be answered; people whose messages disappear get one explanation."""
        message = envelope.message
        if message is None or not message.expires_in_seconds or self._settings.disappearing == "answer":
            return True
        address = to_address(self.name, envelope)
        if address.chat_type == "private" and address.chat_id not in self._notified:
            self._notified.add(address.chat_id)
            try:
                await connection.call("send", send_params(address, Content(text=_TIMER_NOTICE), []))
            except PlatformError as error:
                log.info("%s: couldn't explain disappearing messages: %s", self.name, error)
        return False

    def _encode(self, file: File | Image) -> str:
        path = Path(file.source)
        name = safe_file_name(getattr(file, "name", "") or path.name, file.media_type)
        try:
            if (size := path.stat().st_size) > self._settings.file_limit:
                raise Rejected(f"{name} has {size} bytes, and the limit is {self._settings.file_limit}")
            return encode_file(path.read_bytes(), name, file.media_type)
        except OSError as error:
            raise Rejected(f"{file.source} can't be read: {error.strerror}") from error


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the number of a profile."""
    daemon, number = account.secret("SIGNAL_DAEMON"), account.secret("SIGNAL_ACCOUNT")
    if not daemon or not number:
        raise Refused("Signal needs SIGNAL_DAEMON and SIGNAL_ACCOUNT. Run `talaria setup chat` to enter them.")
    platform = Signal(read_settings(account.name, account.options, daemon, number), account.store)
    account.closing.push_async_callback(platform.close)
    return platform

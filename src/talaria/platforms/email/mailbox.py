"""The mailbox of an account: connections, the position of the last read mail, the folder for sent mail."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from msgspec import Struct

from talaria.contracts.values import DurableValue
from talaria.core.errors import BadCredentials, Rejected, Unreachable
from talaria.platforms.email.access_tokens import AccessTokens
from talaria.platforms.email.imap import Folder, ImapConnection, open_imap
from talaria.platforms.email.settings import EmailSettings

_DEFAULT_SENT = "Sent"
T = TypeVar("T")


class MailboxLogin:
    """Opens connections to the mailbox, logged in."""

    def __init__(self, settings: EmailSettings, context: ssl.SSLContext | None, tokens: AccessTokens | None) -> None:
        self._settings = settings
        self._context = context
        self._tokens = tokens

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ImapConnection]:
        """Connect and log in; raises `BadCredentials`."""
        told = self._settings
        async with open_imap(
            told.imap_host, told.imap_port, told.imap_security, self._context, told.patience
        ) as connection:
            await self._log_in(connection)
            yield connection

    async def _log_in(self, connection: ImapConnection) -> None:
        if self._tokens is None:
            await connection.log_in(self._settings.login, password=self._settings.password)
            return
        try:
            await connection.log_in(self._settings.login, token=await self._tokens.get())
        except BadCredentials:
            self._tokens.expire()
            await connection.log_in(self._settings.login, token=await self._tokens.get())


class MailPosition(Struct, frozen=True):
    """The last mail that was read: the validity of UIDs, its UID, and when it arrived."""

    validity: int
    uid: int
    at: datetime


class StoredPosition:
    """The durable position of an account."""

    def __init__(self, value: DurableValue) -> None:
        self._value = value

    async def resume(self, connection: ImapConnection, folder: Folder) -> tuple[MailPosition, datetime | None]:
        """Return where to continue in a folder; the first time after all mails that are there.

        A server that renumbers its mails changes the validity. Then the mails that arrived since the returned time are
        read again, and those that were answered are recognised by their ids.
        """
        stored = await self._load()
        if stored is None:
            position = MailPosition(folder.validity, folder.next_uid - 1, datetime.now(UTC).replace(microsecond=0))
            await self.save(position)
            return position, None
        if stored.validity == folder.validity:
            return stored, None
        recent = await connection.search_since(stored.at)
        return MailPosition(folder.validity, min(recent, default=folder.next_uid) - 1, stored.at), stored.at

    async def save(self, position: MailPosition) -> None:
        """Store a position durably."""
        await self._value.save(msgspec.json.encode(position).decode())

    async def _load(self) -> MailPosition | None:
        text = await self._value.load()
        return msgspec.json.decode(text, type=MailPosition) if text else None


class SentFolder:
    """The folder for sent mail, over one connection that is opened again when the server has closed it."""

    def __init__(self, login: MailboxLogin, settings: EmailSettings) -> None:
        self._login = login
        self._settings = settings
        self._lock = asyncio.Lock()
        self._name = settings.sent_folder
        self._is_missing = False
        self._closing: AsyncExitStack | None = None
        self._connection: ImapConnection | None = None

    async def has(self, message_id: str) -> bool:
        """Return whether a mail with this id was sent."""
        return await self._use(lambda connection: self._search(connection, message_id))

    async def add(self, mail: bytes) -> None:
        """Store a sent mail, unless the server does so by itself."""
        if not self._settings.saves_sent:
            await self._use(lambda connection: self._append(connection, mail))

    async def close(self) -> None:
        """Close the connection."""
        closing, self._closing, self._connection = self._closing, None, None
        if closing is not None:
            await closing.aclose()

    async def _use(self, call: Callable[[ImapConnection], Awaitable[T]]) -> T:
        async with self._lock:
            if self._connection is not None:
                try:
                    return await call(self._connection)
                except Unreachable:  # servers close idle connections after a while
                    await self.close()
            try:
                return await call(await self._open())
            except BaseException:
                await self.close()
                raise

    async def _open(self) -> ImapConnection:
        self._closing = AsyncExitStack()
        self._connection = await self._closing.enter_async_context(self._login.open())
        self._name = self._name or await self._connection.find_sent_folder() or _DEFAULT_SENT
        return self._connection

    async def _search(self, connection: ImapConnection, message_id: str) -> bool:
        try:
            await connection.select(self._name, read_only=True)
        except Rejected:  # not made yet
            self._is_missing = True
            return False
        return bool(await connection.search_message(message_id))

    async def _append(self, connection: ImapConnection, mail: bytes) -> None:
        """Add a mail, with one command if possible: until it is stored, a crash would repeat it."""
        await connection.append(self._name, mail, self._settings.mail_patience, is_new=self._is_missing)
        self._is_missing = False

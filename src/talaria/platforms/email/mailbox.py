"""A mailbox on its servers: access tokens, login, the read position, the folder for sent mail, and submission."""

import asyncio
import hashlib
import os
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlencode

import aiosmtplib
import msgspec
from msgspec import Struct

from talaria.contracts.values import DurableValue
from talaria.core.errors import BadCredentials, PlatformError, ProviderError, Rejected, SlowDown, Unreachable
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import Timeouts
from talaria.platforms.email.imap import Folder, ImapConnection, open_imap
from talaria.platforms.email.settings import EmailSettings

_FORM = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
_EARLY = timedelta(minutes=2)
_DEFAULT_LIFE = timedelta(hours=1)
_MAX_ANSWER = 64 * 1024
_OK = 200
_OWNER_ONLY = 0o600
_DEFAULT_SENT = "Sent"
T = TypeVar("T")
_GREYLISTED = timedelta(minutes=5)
_DAILY_LIMIT = timedelta(hours=1)
_LIMIT_REACHED = re.compile(r"\b[45]\.4\.5\b")  # the enhanced code of a sending limit, also where the plain one is 550
_TEMPORARY_LOGIN = 454
_ERROR_TEXT = 200


class _Granted(Struct):
    access_token: str = ""
    refresh_token: str = ""
    expires_in: float = 0
    error: str = ""


class _StoredToken(Struct, frozen=True):
    """The newest refresh token, and a digest of the configured one that it follows from."""

    follows: str
    refresh_token: str


class AccessTokens:
    """Tokens for one mailbox; ``folder`` stores the refresh tokens that the provider sends as replacements."""

    def __init__(self, settings: EmailSettings, folder: Path) -> None:
        self._settings = settings
        self._path = folder / "refresh_token.json"
        self._pool = HttpPool()
        self._lock = asyncio.Lock()
        self._token = ""
        self._expires_at = datetime.min.replace(tzinfo=UTC)

    async def get(self) -> str:
        """Return a valid token; raises `BadCredentials` if the provider wants a new sign-in."""
        async with self._lock:
            if datetime.now(UTC) + _EARLY >= self._expires_at:
                await self._renew()
            return self._token

    def expire(self) -> None:
        """Renew the token before its next use, because a server refused it."""
        self._expires_at = datetime.min.replace(tzinfo=UTC)

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()

    async def _renew(self) -> None:
        settings = self._settings
        form = {
            "grant_type": "refresh_token",
            "refresh_token": await asyncio.to_thread(self._load),
            "client_id": settings.client_id,
            **({"client_secret": settings.client_secret} if settings.client_secret else {}),
        }
        timeouts = Timeouts(settings.patience, settings.patience, settings.patience)
        try:
            async with self._pool.request(
                "POST", settings.token_url, urlencode(form).encode(), _FORM, timeouts
            ) as answer:
                status, body = answer.status, await answer.body(_MAX_ANSWER)
        except ProviderError as error:  # of the HTTP client, which model providers share
            raise Unreachable(f"the sign-in server can't be reached: {error}") from error
        granted = _decode(body)
        if status != _OK or not granted.access_token:
            if status >= 500 or status == 429:
                raise Unreachable(f"the sign-in server answered HTTP {status}")
            raise BadCredentials(f"the provider doesn't accept the refresh token ({granted.error[:80] or status})")
        if granted.refresh_token:
            await asyncio.to_thread(self._save, granted.refresh_token)
        self._token = granted.access_token
        life = timedelta(seconds=granted.expires_in) if granted.expires_in else _DEFAULT_LIFE
        self._expires_at = datetime.now(UTC) + life

    def _load(self) -> str:
        """Return the newest refresh token; a newly configured one replaces a stored one."""
        try:
            stored = msgspec.json.decode(self._path.read_bytes(), type=_StoredToken)
        except (OSError, msgspec.MsgspecError):
            return self._settings.refresh_token
        return stored.refresh_token if stored.follows == self._digest() else self._settings.refresh_token

    def _save(self, token: str) -> None:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = self._path.with_suffix(".new")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _OWNER_ONLY)
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.encode(_StoredToken(self._digest(), token)))
        draft.replace(self._path)

    def _digest(self) -> str:
        return hashlib.sha256(self._settings.refresh_token.encode()).hexdigest()


class MailboxLogin:
    """Opens connections to the mailbox, logged in."""

    def __init__(self, settings: EmailSettings, context: ssl.SSLContext | None, tokens: AccessTokens | None) -> None:
        self._settings = settings
        self._context = context
        self._tokens = tokens

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ImapConnection]:
        """Connect and log in; raises `BadCredentials`."""
        settings = self._settings
        async with open_imap(
            settings.imap_host, settings.imap_port, settings.imap_security, self._context, settings.patience
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
        return await self._use_connection(lambda connection: self._search(connection, message_id))

    async def add(self, mail: bytes) -> None:
        """Store a sent mail, unless the server does so by itself."""
        if not self._settings.saves_sent:
            await self._use_connection(lambda connection: self._append(connection, mail))

    async def close(self) -> None:
        """Close the connection."""
        closing, self._closing, self._connection = self._closing, None, None
        if closing is not None:
            await closing.aclose()

    async def _use_connection(self, call: Callable[[ImapConnection], Awaitable[T]]) -> T:
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


class MailSubmission:
    """The SMTP server of an account; each mail has its own connection."""

    def __init__(self, settings: EmailSettings, context: ssl.SSLContext | None, tokens: AccessTokens | None) -> None:
        self._settings = settings
        self._context = context
        self._tokens = tokens

    async def deliver(self, recipient: str, mail: bytes, accepted: Callable[[], Awaitable[None]]) -> None:
        """Hand over a mail; ``accepted`` is called as soon as the server has taken it on."""
        async with self._open() as server:
            await server.mail(self._settings.address, options=self._make_mail_options(server, mail))
            await server.rcpt(recipient)
            await server.data(mail, timeout=self._settings.mail_patience.total_seconds())
            await accepted()

    async def accepts(self, recipient: str) -> bool:
        """Return whether the server takes mail for an address; nothing is sent."""
        async with self._open() as server:
            await server.mail(self._settings.address)
            try:
                await server.rcpt(recipient)
            except aiosmtplib.SMTPRecipientRefused as error:
                if error.code < 500:
                    raise
                return False
            return True

    async def check_login(self) -> None:
        """Raise an error unless the server accepts the credentials."""
        async with self._open():
            pass

    def _make_mail_options(self, server: aiosmtplib.SMTP, mail: bytes) -> list[str]:
        return [f"SIZE={len(mail)}"] if server.supports_extension("size") else []

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[aiosmtplib.SMTP]:
        settings = self._settings
        server = aiosmtplib.SMTP(
            hostname=settings.smtp_host,
            port=settings.smtp_port,
            use_tls=settings.smtp_security == "tls",
            start_tls=settings.smtp_security == "starttls",
            tls_context=self._context,
            timeout=settings.patience.total_seconds(),
            local_hostname=settings.domain,
        )
        try:
            await server.connect()
            await self._log_in(server)
            yield server
            with suppress(aiosmtplib.SMTPException):
                await server.quit()
        except (aiosmtplib.SMTPException, OSError) as error:
            raise _translate_error(error) from error
        finally:
            server.close()

    async def _log_in(self, server: aiosmtplib.SMTP) -> None:
        if self._tokens is None:
            await server.login(self._settings.login, self._settings.password)
            return
        try:
            await server.auth_xoauth2(self._settings.login, await self._tokens.get())
        except aiosmtplib.SMTPAuthenticationError:
            self._tokens.expire()
            await server.auth_xoauth2(self._settings.login, await self._tokens.get())


def _decode(body: bytes) -> _Granted:
    try:
        return msgspec.json.decode(body, type=_Granted, strict=False)
    except msgspec.MsgspecError:
        return _Granted()


def _translate_error(error: Exception) -> PlatformError:
    """Return our error for one of the library or the connection; only codes are read, never texts."""
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
        return _translate_error(error.recipients[0])
    if not isinstance(error, aiosmtplib.SMTPResponseException):
        return Unreachable(f"the SMTP server can't be reached: {str(error)[:_ERROR_TEXT] or 'no answer'}")
    answer = f"{error.code} {error.message}"[:_ERROR_TEXT]
    if isinstance(error, aiosmtplib.SMTPAuthenticationError) and error.code != _TEMPORARY_LOGIN:
        return BadCredentials(f"the SMTP server doesn't accept the user name or password ({error.code})")
    if _LIMIT_REACHED.search(answer):
        return SlowDown(
            f"the SMTP server's sending limit is reached: {answer}", retry_after=_DAILY_LIMIT, everywhere=True
        )
    if isinstance(error, aiosmtplib.SMTPRecipientRefused) and error.code < 500:
        return SlowDown(f"the SMTP server asks for a pause: {answer}", retry_after=_GREYLISTED, everywhere=False)
    is_about_mail = isinstance(
        error, (aiosmtplib.SMTPRecipientRefused, aiosmtplib.SMTPSenderRefused, aiosmtplib.SMTPDataError)
    )
    if is_about_mail and error.code >= 500:
        return Rejected(f"the SMTP server refuses the mail: {answer}")
    return Unreachable(f"the SMTP server failed: {answer}")

"""Submission of mail over SMTP."""

import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

import aiosmtplib

from talaria.core.errors import BadCredentials, PlatformError, Rejected, SlowDown, Unreachable
from talaria.platforms.email.access_tokens import AccessTokens
from talaria.platforms.email.settings import EmailSettings

_GREYLISTED = timedelta(minutes=5)
_DAILY_LIMIT = timedelta(hours=1)
_LIMIT_REACHED = re.compile(r"\b[45]\.4\.5\b")  # the enhanced code of a sending limit, also where the plain one is 550
_TEMPORARY_LOGIN = 454
_ERROR_TEXT = 200


class MailSubmission:
    """The SMTP server of an account; each mail has its own connection."""

    def __init__(self, settings: EmailSettings, context: ssl.SSLContext | None, tokens: AccessTokens | None) -> None:
        self._settings = settings
        self._context = context
        self._tokens = tokens

    async def deliver(self, recipient: str, mail: bytes, accepted: Callable[[], Awaitable[None]]) -> None:
        """Hand over a mail; ``accepted`` is called as soon as the server has taken it on."""
        async with self._open() as server:
            await server.mail(self._settings.address, options=self._mail_options(server, mail))
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

    def _mail_options(self, server: aiosmtplib.SMTP, mail: bytes) -> list[str]:
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
            raise _translate(error) from error
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


def _translate(error: Exception) -> PlatformError:
    """Return our error for one of the library or the connection; only codes are read, never texts."""
    if isinstance(error, aiosmtplib.SMTPRecipientsRefused):
        return _translate(error.recipients[0])
    if not isinstance(error, aiosmtplib.SMTPResponseException):
        return Unreachable(f"the SMTP server can't be reached: {str(error)[:_ERROR_TEXT] or 'no answer'}")
    said = f"{error.code} {error.message}"[:_ERROR_TEXT]
    if isinstance(error, aiosmtplib.SMTPAuthenticationError) and error.code != _TEMPORARY_LOGIN:
        return BadCredentials(f"the SMTP server doesn't accept the user name or password ({error.code})")
    if _LIMIT_REACHED.search(said):
        return SlowDown(
            f"the SMTP server's sending limit is reached: {said}", retry_after=_DAILY_LIMIT, everywhere=True
        )
    if isinstance(error, aiosmtplib.SMTPRecipientRefused) and error.code < 500:
        return SlowDown(f"the SMTP server asks for a pause: {said}", retry_after=_GREYLISTED, everywhere=False)
    is_about_mail = isinstance(
        error, (aiosmtplib.SMTPRecipientRefused, aiosmtplib.SMTPSenderRefused, aiosmtplib.SMTPDataError)
    )
    if is_about_mail and error.code >= 500:
        return Rejected(f"the SMTP server refuses the mail: {said}")
    return Unreachable(f"the SMTP server failed: {said}")

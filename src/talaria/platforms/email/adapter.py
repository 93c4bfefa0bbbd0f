"""The e-mail adapter: reads a mailbox over IMAP, answers over SMTP."""

import asyncio
import logging
import secrets
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

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
from talaria.contracts.values import DurableValue, NamedValue
from talaria.core.addresses import Address
from talaria.core.errors import PlatformError, Refused, Rejected
from talaria.platforms.content import sanitize_text, save_file
from talaria.platforms.email.imap import ImapConnection, MailEntry
from talaria.platforms.email.incoming import (
    IgnoredMail,
    MailThread,
    ReceivedMail,
    find_part,
    parse_mail,
    read_mail,
)
from talaria.platforms.email.mailbox import (
    AccessTokens,
    MailboxLogin,
    MailPosition,
    MailSubmission,
    SentFolder,
    StoredPosition,
)
from talaria.platforms.email.outgoing import TEXT_LIMIT, check_content, make_mail, make_message_id, read_file
from talaria.platforms.email.sender_check import find_reporting_server
from talaria.platforms.email.settings import EmailSettings, is_address, read_settings

EMAIL_POSITION = NamedValue("email_position", str)  # by account
EMAIL_THREADS = NamedValue("email_threads", MailThread)  # by account, address and thread
_SMALL_MAIL = 64 * 1024  # bytes; larger ones are parsed in a thread
_MAX_NAME = 200

log = logging.getLogger(__name__)


class Email(PlatformDefaults):
    """One mailbox. ``store`` has its position and threads, ``folder`` renewed tokens; the creator closes it."""

    def __init__(self, settings: EmailSettings, store: Store, folder: Path) -> None:
        self.name = settings.name
        self.abilities = PlatformCapabilities(
            text_limit=TEXT_LIMIT,
            threads=True,
            threaded=True,
            progress=False,
            exclusive=True,
            file_limit=settings.file_limit,
        )
        self._settings = settings
        self._store = store
        self._position = StoredPosition(DurableValue(store, EMAIL_POSITION, settings.name))
        context = _make_context(settings)
        self._tokens = AccessTokens(settings, folder) if settings.refresh_token else None
        self._login = MailboxLogin(settings, context, self._tokens)
        self._submission = MailSubmission(settings, context, self._tokens)
        self._sent = SentFolder(self._login, settings)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[AsyncIterator[Incoming]]:
        """Open the inbox and yield new mail; a mail is marked as read when the next one is requested."""
        async with self._login.open() as connection:
            folder = await connection.select(self._settings.inbox)
            position, since = await self._position.resume(connection, folder)
            async with aclosing(self._receive(connection, position, since)) as updates:
                yield updates

    async def send(self, to: Address, content: Content, key: str) -> MessageRef:
        """Send one mail, unless the folder for sent mail has one with the same key."""
        check_content(to, content)
        files = [await asyncio.to_thread(read_file, file, self._settings.file_limit) for file in content.files]
        if sum(len(data) for _, _, data in files) > self._settings.file_limit:
            raise Rejected(f"the files have more than {self._settings.file_limit} bytes together")
        message_id = make_message_id(key, to.thread_id, self._settings.domain)
        if await self._sent.has(message_id):
            return MessageRef(to, message_id)
        starts_thread = not to.thread_id and not content.reply_to
        thread = None if starts_thread else await self._load_thread(to)
        mail = await asyncio.to_thread(
            make_mail, to, content, files, thread, self._settings, message_id=message_id, at=datetime.now(UTC)
        )
        await self._submission.deliver(to.chat_id, mail, lambda: self._store_sent(mail))
        return MessageRef(to, message_id)

    async def fetch(self, attachment: Attachment, folder: Path) -> Path:
        """Read a file from its mail, which is still in the inbox."""
        validity, uid, index = map(int, attachment.reference.split("/"))
        async with self._login.open() as connection:
            inbox = await connection.select(self._settings.inbox, read_only=True)
            data = await connection.fetch(uid, "BODY[]", self._settings.mail_patience)
        if data is None or inbox.validity != validity:
            raise Rejected("the mail of this file is not in the inbox any more")
        part = await asyncio.to_thread(lambda: find_part(parse_mail(data), index))
        if part is None:
            raise Rejected("the mail has no such file")
        return save_file(part, attachment.name, folder, attachment.media_type)

    async def create_handoff_thread(self, parent_chat_id: str, name: str) -> str | None:
        """Prepare a thread with this subject; ``None`` if the server takes no mail for the address."""
        if not is_address(parent_chat_id) or not await self._submission.accepts(parent_chat_id):
            return None
        thread_id = secrets.token_hex(10)
        subject = " ".join(sanitize_text(name).split())[:_MAX_NAME]
        # There is no mail with this id: the mails of the thread refer to it, so that clients show them together.
        root = make_message_id("", thread_id, self._settings.domain)
        await self._save_thread(Address(self.name, parent_chat_id, "private", thread_id), MailThread(subject, (root,)))
        return thread_id

    async def close(self) -> None:
        """Close all connections."""
        await self._sent.close()
        if self._tokens is not None:
            await self._tokens.close()

    async def _store_sent(self, mail: bytes) -> None:
        try:
            await self._sent.add(mail)
        except PlatformError as error:  # the mail is sent: failing now would send it again
            log.warning("%s: couldn't store a sent mail: %s", self.name, error)

    async def _receive(
        self, connection: ImapConnection, position: MailPosition, since: datetime | None
    ) -> AsyncGenerator[Incoming, None]:
        pause = self._settings.idle if "IDLE" in connection.capabilities else self._settings.poll
        while True:
            for entry in await connection.list_after(position.uid):
                is_older = since is not None and entry.at < since
                received = None if is_older else await self._read(connection, entry, position.validity)
                if received is not None:
                    await self._save_thread(received.incoming.address, received.thread)
                    yield received.incoming
                position = MailPosition(position.validity, entry.uid, max(position.at, entry.at))
                await self._position.save(position)
                if received is not None:
                    await connection.mark_seen(entry.uid)
            await connection.wait_for_change(pause)

    async def _read(self, connection: ImapConnection, entry: MailEntry, validity: int) -> ReceivedMail | None:
        """Return a mail; ``None`` for one that gets no answer, which stays unread."""
        is_large = entry.size > self._settings.mail_limit
        part = "BODY[HEADER]" if is_large else "BODY[]"
        data = await connection.fetch(entry.uid, part, self._settings.mail_patience)
        if data is None:  # deleted meanwhile
            return None
        location = f"{validity}/{entry.uid}"
        try:
            if len(data) <= _SMALL_MAIL:
                received = read_mail(data, entry.at, location, self._settings)
            else:
                received = await asyncio.to_thread(read_mail, data, entry.at, location, self._settings)
        except IgnoredMail as reason:
            log.warning("%s: mail %s gets no answer: %s", self.name, location, reason)
            return None
        except (ValueError, LookupError, AttributeError, TypeError):  # the parser fails on some broken headers
            log.exception("%s: mail %s can't be read", self.name, location)
            return None
        return _note_size(received, entry.size) if is_large else received

    async def _load_thread(self, to: Address) -> MailThread | None:
        key = self._make_thread_key(to)
        return await self._store.read(lambda tx: EMAIL_THREADS.get(tx, key))

    async def _save_thread(self, at: Address, thread: MailThread) -> None:
        key = self._make_thread_key(at)
        await self._store.write(lambda tx: EMAIL_THREADS.write(tx, key, thread))

    def _make_thread_key(self, at: Address) -> str:
        return f"{self.name}:{at.chat_id}:{at.thread_id}"


def _note_size(received: ReceivedMail, size: int) -> ReceivedMail:
    note = f"[This mail has {size // (1024 * 1024)} MB, too many to be read. Only its subject is known.]"
    text = f"{received.incoming.text}\n\n{note}".strip()
    return msgspec.structs.replace(received, incoming=msgspec.structs.replace(received.incoming, text=text))


def _make_context(settings: EmailSettings) -> ssl.SSLContext | None:
    if settings.imap_security == settings.smtp_security == "none":
        return None
    try:
        return ssl.create_default_context(cafile=settings.ca_file or None)
    except (OSError, ssl.SSLError) as error:
        raise Refused(f"The option ca_file of platforms.{settings.name} can't be read: {error}.") from error


async def check_account(settings: EmailSettings, folder: Path) -> str:
    """Log in to both servers and open the inbox; raises what is wrong.

    Returns the name under which the server has reported its checks of the newest mail; empty if there is none.
    """
    context = _make_context(settings)
    tokens = AccessTokens(settings, folder) if settings.refresh_token else None
    try:
        async with MailboxLogin(settings, context, tokens).open() as connection:
            await connection.select(settings.inbox, read_only=True)
            newest = max(await connection.search("ALL"), default=0)
            headers = await connection.fetch(newest, "BODY[HEADER]", settings.patience) if newest else None
        await MailSubmission(settings, context, tokens).check_login()
    finally:
        if tokens is not None:
            await tokens.close()
    return find_reporting_server(parse_mail(headers)) if headers else ""


def open_platform(account: PlatformAccount) -> Platform:
    """Return the adapter for the mailbox of a profile."""
    settings = read_settings(account.name, account.options, lambda name: account.secret(name) or "")
    platform = Email(settings, account.store, account.folder)
    account.closing.push_async_callback(platform.close)
    return platform

"""The far side of e-mail for the contract suite: people with mailboxes on a real mail server, and our account."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import make_msgid
from pathlib import Path
from typing import Any

from tests.platforms.dead_connection import Wire

from talaria.contracts.store import Store
from talaria.core.addresses import Address
from talaria.core.ids import new_id
from talaria.platforms.email.adapter import Email
from talaria.platforms.email.incoming import make_thread_id
from talaria.platforms.email.settings import EmailSettings
from talaria.testing.mail_server import DOMAIN, PASSWORD, MailServer
from talaria.testing.platform_suite import FailureKind, VisibleMessage
from talaria.testing.wait import until

PATIENCE = timedelta(seconds=5)
_ATTACHED = "application/octet-stream"


def new_address(name: str) -> str:
    return f"user-{name}-{new_id()}@{DOMAIN}".lower()


def compose(sender: str, recipient: str, text: str, subject: str = "Hello", **headers: str) -> EmailMessage:
    """Return a mail as a client would write it; underscores in names of headers stand for hyphens."""
    mail = EmailMessage(policy=SMTP)
    mail["From"] = f"Alice <{sender}>"
    mail["To"] = recipient
    mail["Subject"] = subject
    mail["Message-ID"] = make_msgid(domain="client.test")
    for name, value in headers.items():
        del mail[name.replace("_", "-")]
        mail[name.replace("_", "-")] = value
    mail.set_content(text)
    return mail


class MailFarSide:
    """One of our accounts, and a person who writes to it in two threads."""

    def __init__(self, server: MailServer, store: Store, folder: Path, imap: Wire, smtp: Wire) -> None:
        self.server = server
        self.imap, self.smtp = imap, smtp
        self.bot, self.alice = new_address("bot"), new_address("alice")
        self._store, self.folder = store, folder
        self.platform = self.open()
        self.secret = PASSWORD
        self._roots = {make_thread_id(root): root for root in (f"{new_id()}@client.test" for _ in range(2))}
        first, second = self._roots
        self.private = Address("email", self.alice, "private", first)
        self.thread: Address | None = Address("email", self.alice, "private", second)
        self.group: Address | None = None
        self.nowhere = Address("email", f"nobody@{DOMAIN}")
        self.last: EmailMessage | None = None
        self._troubles = ExitStack()

    def open(self, **changes: Any) -> Email:
        """Return an adapter for our account."""
        return Email(self.settings(**changes), self._store, self.folder)

    def settings(self, **changes: Any) -> EmailSettings:
        """Return the settings of our account."""
        options: dict[str, Any] = {
            "address": self.bot,
            "password": PASSWORD,
            "imap_host": "127.0.0.1",
            "imap_port": self.imap.port,
            "imap_security": "none",
            "smtp_host": "127.0.0.1",
            "smtp_port": self.smtp.port,
            "smtp_security": "none",
            "authserv_id": f"mx.{DOMAIN}",
            "file_limit": 1024 * 1024,
            "patience": PATIENCE,
            "mail_patience": timedelta(seconds=30),
            "idle": timedelta(seconds=1),
        }
        return EmailSettings(**options | changes)

    async def submit(self, mail: EmailMessage, *, login: str | None = None, sender: str = "") -> None:
        """Send a mail to us, by default logged in as Alice, and wait until it is in the mailbox."""
        user = self.alice if login is None else login
        await asyncio.to_thread(self.server.submit, mail.as_bytes(), sender or self.alice, self.bot, login=user)
        await until(self.server.is_settled)
        self.last = mail

    async def says(self, at: Address, text: str, *, addressed: bool = True) -> None:
        await self.submit(self._reply(at, text))

    async def sends_file(self, at: Address, name: str, data: bytes) -> None:
        mail = self._reply(at, "A file.")
        mail.add_attachment(data, maintype="application", subtype="octet-stream", filename=name)
        await self.submit(mail)

    async def presses(self, at: Address, message_id: str, label: str) -> None:
        raise NotImplementedError

    async def reacts(self, at: Address, message_id: str, emoji: str) -> None:
        raise NotImplementedError

    async def own_reactions(self, at: Address, message_id: str) -> list[str]:
        raise NotImplementedError

    async def redelivers(self) -> bool:
        assert self.last is not None
        await self.submit(self.last)
        return True

    async def inbox(self, address: str = "") -> list[EmailMessage]:
        """Return the mails of a person, by default Alice."""
        await until(self.server.is_settled)
        return await asyncio.to_thread(self.server.read, address or self.alice)

    async def seen(self, at: Address) -> list[VisibleMessage]:
        mails = await self.inbox()
        return [_show(mail) for mail in mails if f".{at.thread_id}@" in str(mail["Message-ID"])]

    async def disrupt(self, failure: FailureKind) -> bool:
        match failure:
            case "slow_down":
                self._troubles.enter_context(self.server.disturbed("slow"))
            case "failing":
                self._troubles.enter_context(self.server.disturbed("failing"))
            case "silent":
                self.smtp.die()
            case "deaf":
                self.imap.die()
            case "cut":
                self.imap.cut()
                self.smtp.cut()
            case "revoked":
                await asyncio.to_thread(self.server.revoke, self.bot)
        return True

    async def calm(self) -> None:
        self._troubles.close()
        self.imap.revive()
        self.smtp.revive()

    def _reply(self, at: Address, text: str) -> EmailMessage:
        return compose(self.alice, self.bot, text, "Re: Hello", References=f"<{self._roots[at.thread_id]}>")


def _show(mail: EmailMessage) -> VisibleMessage:
    body = mail.get_body(("plain",))
    assert body is not None
    return VisibleMessage(
        message_id=_bare(str(mail["Message-ID"])),
        text=str(body.get_content()).replace("\r\n", "\n").removesuffix("\n"),
        reply_to=_bare(str(mail.get("In-Reply-To", ""))),
        files=tuple(_names(mail)),
    )


def _names(mail: EmailMessage) -> Iterator[str]:
    return (part.get_filename() or "" for part in mail.iter_attachments())


def _bare(message_id: str) -> str:
    return re.sub(r"[<>]", "", message_id)


@asynccontextmanager
async def mail_far_side(server: MailServer, store: Store, folder: Path) -> AsyncIterator[MailFarSide]:
    async with Wire(f"http://127.0.0.1:{server.imap}") as imap, Wire(f"http://127.0.0.1:{server.smtp}") as smtp:
        there = MailFarSide(server, store, folder, imap, smtp)
        try:
            yield there
        finally:
            await there.calm()
            await there.platform.close()

"""Translate mails into updates: verify the sender, find the thread, leave out automatic mail."""

import hashlib
import re
from collections.abc import Iterator
from datetime import datetime
from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import getaddresses

from msgspec import Struct

from talaria.contracts.platform import Attachment, Incoming, Sender
from talaria.core.addresses import Address
from talaria.platforms.email.mail_text import read_text
from talaria.platforms.email.sender_check import UnverifiedSender, verify_sender
from talaria.platforms.email.settings import EmailSettings

_MESSAGE_ID = re.compile(r"<([^<>\s]{1,900})>")
_OWN_ID = re.compile(r"talaria\.[0-9a-f]{32}\.([0-9a-f]{20}|new)@")
_REPLY_PREFIX = re.compile(r"\A\s*(?:(?:re|aw|sv|antw|odp|ref|回复|答复)\s*(?:\[\d+\])?\s*:\s*)+", re.IGNORECASE)
_LIST_HEADERS = ("List-Id", "List-Post", "List-Unsubscribe", "X-Autoreply", "X-Autorespond", "X-Loop")
_BULK = frozenset({"bulk", "list", "junk", "auto_reply"})
_MACHINES = ("mailer-daemon@", "postmaster@", "noreply@", "no-reply@")
_SIGNATURES = frozenset({"application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature"})
_MAX_REFERENCES = 20
_MAX_ATTACHMENTS = 50
_MAX_SUBJECT = 200
_THREAD_DIGITS = 20


class IgnoredMail(Exception):
    """A mail that gets no answer; the text says why."""


class MailThread(Struct, frozen=True, omit_defaults=True):
    """The state of a thread: its subject, and the ids of its last mails, the root first."""

    subject: str
    references: tuple[str, ...] = ()


class ReceivedMail(Struct, frozen=True):
    """An update, and its thread as it is after this mail."""

    incoming: Incoming
    thread: MailThread


def parse_mail(data: bytes) -> EmailMessage:
    """Return a parsed mail; anything can be parsed."""
    return message_from_bytes(data, policy=policy.default)


def read_mail(data: bytes, at: datetime, place: str, settings: EmailSettings) -> ReceivedMail:
    """Return what a person wrote; ``place`` identifies the mail in the mailbox. Raises `IgnoredMail`."""
    mail = parse_mail(data)
    check_is_personal(mail, settings)
    try:
        address, name = verify_sender(mail, settings.authserv_ids, settings.received_above)
    except UnverifiedSender as error:
        raise IgnoredMail(f"its sender is not verified: {error}") from error
    if address == settings.address:
        raise IgnoredMail("it is our own")
    message_id = next(iter(_read_ids(mail, "Message-ID")), "") or f"{hashlib.sha256(data).hexdigest()[:32]}@unnamed"
    earlier = [*_read_ids(mail, "References"), *_read_ids(mail, "In-Reply-To")]
    subject = _read_subject(mail)
    root = earlier[0] if earlier else message_id
    incoming = Incoming(
        external_id=hashlib.sha256(f"{message_id}\0{address}".encode()).hexdigest()[:40],
        address=Address(settings.name, address, "private", find_thread(earlier, root)),
        sender=Sender(address, name or address),
        at=at,
        text=_join_subject(subject, read_text(mail, is_reply=bool(earlier)), is_reply=bool(earlier)),
        attachments=tuple(_list_attachments(mail, place)),
        message_id=message_id,
        reply_to=earlier[-1] if earlier else "",
        chat_name=subject,
        addressed=_is_addressed(mail, settings.address),
    )
    references = list(dict.fromkeys([*earlier, message_id]))
    kept = [references[0], *references[1:][-_MAX_REFERENCES:]]
    return ReceivedMail(incoming, MailThread(subject, tuple(kept)))


def check_is_personal(mail: EmailMessage, settings: EmailSettings) -> None:
    """Raise `IgnoredMail` for mail of machines: automatic replies, lists, newsletters, bounces and our own."""
    automatic = str(mail.get("Auto-Submitted", "no")).partition(";")[0].strip().lower()
    if automatic != "no":
        raise IgnoredMail(f"it was sent automatically ({automatic[:40]})")
    if str(mail.get("Precedence", "")).strip().lower() in _BULK:
        raise IgnoredMail("it was sent in bulk")
    if found := next((name for name in _LIST_HEADERS if name in mail), None):
        raise IgnoredMail(f"it is from a list or an automatic reply ({found})")
    is_report = mail.get_content_type() == "multipart/report"
    if is_report or str(mail.get("Return-Path", "<?>")).strip() == "<>":
        raise IgnoredMail("it is a bounce or a delivery report")
    author = getaddresses([str(mail.get("From", ""))])[:1]
    if author and author[0][1].lower().startswith(_MACHINES):
        raise IgnoredMail("its sender is a machine")


def make_thread_id(root: str) -> str:
    """Return the id of the thread that starts with this message id."""
    return hashlib.sha256(root.encode()).hexdigest()[:_THREAD_DIGITS]


def find_thread(earlier: list[str], root: str) -> str:
    """Return the thread of a mail that refers to earlier ones.

    The ids of our mails contain their thread, so a client that shortens the references doesn't break it. It is empty
    for an answer to one of ours that was sent outside any thread.
    """
    for message_id in reversed(earlier):
        if found := _OWN_ID.match(message_id):
            return "" if found[1] == "new" else found[1]
    return make_thread_id(root)


def find_part(mail: EmailMessage, index: int) -> bytes | None:
    """Return the content of the part at a position of a mail."""
    return next((_read_content(part) for position, part in enumerate(mail.walk()) if position == index), None)


def strip_reply_prefix(subject: str) -> str:
    """Return a subject without ``Re:`` and its translations."""
    return _REPLY_PREFIX.sub("", subject).strip()


def _read_ids(mail: EmailMessage, header: str) -> list[str]:
    found = [one for value in mail.get_all(header, []) for one in _MESSAGE_ID.findall(str(value))]
    return list(dict.fromkeys(found))


def _read_subject(mail: EmailMessage) -> str:
    subject = " ".join(str(mail.get("Subject", "")).split())
    return strip_reply_prefix("".join(one for one in subject if one.isprintable()))[:_MAX_SUBJECT]


def _join_subject(subject: str, text: str, *, is_reply: bool) -> str:
    """Return a mail's text, after the subject if it is the first of its thread and no command."""
    if is_reply or not subject or text.startswith("/"):
        return text
    return f"{subject}\n\n{text}" if text else subject


def _is_addressed(mail: EmailMessage, address: str) -> bool:
    """Return whether the mail is for us: not if we only get a copy."""
    to, copies = (
        {one.lower() for _, one in getaddresses([str(value) for value in mail.get_all(header, [])])}
        for header in ("To", "Cc")
    )
    return address in to or address not in copies


def _list_attachments(mail: EmailMessage, place: str) -> Iterator[Attachment]:
    body = {id(part) for part in (mail.get_body(("plain",)), mail.get_body(("html",))) if part is not None}
    count = 0
    for index, part in enumerate(mail.walk()):
        is_container = part.is_multipart() and part.get_content_type() != "message/rfc822"
        if is_container or id(part) in body or _is_inside_mail(mail, part) or count >= _MAX_ATTACHMENTS:
            continue
        media_type = part.get_content_type()
        name = part.get_filename() or ""
        is_alternative = media_type in ("text/plain", "text/html") and not (name or part.is_attachment())
        if media_type in _SIGNATURES or is_alternative:
            continue
        count += 1
        kind = "picture" if media_type.startswith("image/") else "document"
        size = len(_read_content(part))
        yield Attachment(f"{place}/{index}", kind, name or _default_name(media_type), media_type, size)  # type: ignore[arg-type] # a literal


def _is_inside_mail(mail: EmailMessage, part: EmailMessage) -> bool:
    """Return whether a part belongs to a mail that is itself attached."""
    attached = [one for one in mail.walk() if one is not mail and one.get_content_type() == "message/rfc822"]
    return any(part is not one and any(part is inner for inner in one.walk()) for one in attached)


def _default_name(media_type: str) -> str:
    return "mail.eml" if media_type == "message/rfc822" else ""


def _read_content(part: EmailMessage) -> bytes:
    if part.get_content_type() == "message/rfc822":
        return b"".join(one.as_bytes() for one in part.iter_parts())
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""

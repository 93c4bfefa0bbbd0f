"""Translate messages into mails: plain text and HTML, headers of the thread, attached files."""

import hashlib
import mimetypes
import re
from collections.abc import Sequence
from datetime import datetime
from email import policy
from email.headerregistry import Address as MailAddress
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path

from markdown_it import MarkdownIt

from talaria.contracts.platform import Content
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.core.messages import File, Image
from talaria.platforms.content import sanitize_text
from talaria.platforms.email.incoming import MailThread
from talaria.platforms.email.settings import EmailSettings, is_address

TEXT_LIMIT = 100_000  # characters
_POLICY = policy.SMTP.clone(max_line_length=200)
# Raw HTML stays text, and pictures stay links: a mail must not load anything.
_READER = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"]).disable("image")
_MARKS = re.compile(r"[*_`#>~|\[\]]+")
_SUBJECT_LENGTH = 70


def make_message_id(key: str, thread_id: str, domain: str) -> str:
    """Return the id of the mail with this key, always the same; answers find their thread in it."""
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return f"talaria.{digest}.{thread_id or 'new'}@{domain}"


def check_content(to: Address, content: Content) -> str:
    """Return the text to send; raises `Rejected` if there is nothing, too much, or nobody to send to."""
    if not is_address(to.chat_id):
        raise Rejected(f"{to.chat_id} is no e-mail address")
    text = sanitize_text(content.text)
    if not text.strip() and not content.files:
        raise Rejected("a mail without text or files can't be sent")
    if len(text) > TEXT_LIMIT:
        raise Rejected(f"a mail has at most {TEXT_LIMIT} characters, and this one {len(text)}")
    return text


def make_mail(
    to: Address,
    content: Content,
    files: Sequence[tuple[str, str, bytes]],
    thread: MailThread | None,
    settings: EmailSettings,
    *,
    message_id: str,
    at: datetime,
) -> bytes:
    """Return a mail; ``files`` are names, media types and contents. Raises `Rejected` for invalid content."""
    text = check_content(to, content)
    mail = EmailMessage(policy=_POLICY)
    user, _, domain = settings.address.rpartition("@")
    mail["From"] = MailAddress(_join_lines(settings.display_name), user, domain)
    mail["To"] = to.chat_id
    mail["Subject"] = _choose_subject(thread, text, files, is_reply=bool(content.reply_to))
    mail["Date"] = format_datetime(at)
    mail["Message-ID"] = f"<{message_id}>"
    references = list(dict.fromkeys([*(thread.references if thread else ()), *filter(None, [content.reply_to])]))
    if references:
        mail["In-Reply-To"] = f"<{content.reply_to or references[-1]}>"
        mail["References"] = " ".join(f"<{one}>" for one in references)
    # Automatic replies must not be answered by other machines (RFC 3834).
    mail["Auto-Submitted"] = "auto-replied" if content.reply_to else "auto-generated"
    mail["X-Auto-Response-Suppress"] = "All"
    mail.set_content(text)
    if html := render_html(text):
        mail.add_alternative(html, subtype="html")
    for name, media_type, data in files:
        main, _, sub = (media_type or mimetypes.guess_type(name)[0] or "application/octet-stream").partition("/")
        mail.add_attachment(data, maintype=main, subtype=sub or "octet-stream", filename=_join_lines(name))
    return mail.as_bytes()


def render_html(text: str) -> str:
    """Return a text as HTML; empty if it has no formatting."""
    body = str(_READER.render(text)).strip()
    if re.fullmatch(r"(?:<p>|</p>|<br />|[^<>])*", body):
        return ""
    return f'<!doctype html><html><head><meta charset="utf-8"></head><body>\n{body}\n</body></html>\n'


def read_file(file: File | Image, limit: int) -> tuple[str, str, bytes]:
    """Return name, media type and content of a file; raises `Rejected` if it can't be sent."""
    path = Path(file.source)
    try:
        if (size := path.stat().st_size) > limit:
            raise Rejected(f"{path.name} has {size} bytes, and a mail takes {limit}")
        return getattr(file, "name", "") or path.name, file.media_type or "", path.read_bytes()
    except OSError as error:
        raise Rejected(f"{file.source} can't be read: {error.strerror}") from error


def _choose_subject(
    thread: MailThread | None, text: str, files: Sequence[tuple[str, str, bytes]], *, is_reply: bool
) -> str:
    if thread is not None and (subject := _join_lines(thread.subject)):
        return f"Re: {subject}" if is_reply or len(thread.references) > 1 else subject
    first = next((line for line in (_join_lines(_MARKS.sub("", one)) for one in text.splitlines()) if line), "")
    first = first or (files[0][0] if files else "")
    return first if len(first) <= _SUBJECT_LENGTH else f"{first[: _SUBJECT_LENGTH - 1].rstrip()}…"


def _join_lines(text: str) -> str:
    return " ".join("".join(one if one.isprintable() else " " for one in text).split())

"""Translate mails into updates: verify the sender, find the thread, read what the author wrote, skip automatic mail."""

import itertools
import re
from collections.abc import Iterator
from email.message import EmailMessage, MIMEPart
from typing import TYPE_CHECKING

from talaria.core.text_formats import is_nested_deeper

if TYPE_CHECKING:  # loaded for mail without plain text
    from selectolax.lexbor import LexborNode
import hashlib
from datetime import datetime
from email import message_from_bytes, policy
from email.utils import getaddresses

from msgspec import Struct

from talaria.contracts.platform import Attachment, Incoming, Sender
from talaria.core.addresses import Address
from talaria.platforms.email.sender_check import UnverifiedSender, verify_sender
from talaria.platforms.email.settings import EmailSettings

_SIGNATURE = re.compile(r"^-- ?$", re.MULTILINE)
_DEVICE = re.compile(
    r"Sent from (?:my|Outlook|Mail|Proton|Yahoo)\b|Get Outlook for|Sent with |Von meinem .{1,40} gesendet"
    r"|Gesendet (?:mit|von|über) |Envoyé (?:de|depuis) |Enviado (?:desde|do|de) |Inviato da |Verzonden vanaf "
)
_SEPARATOR = re.compile(
    r"-{2,} ?(?:Original Message|Ursprüngliche (?:Nachricht|Mail)|Message d'origine|Mensaje original"
    r"|Messaggio originale|Oorspronkelijk bericht|Ursprungligt meddelande) ?-{2,}|_{20,}",
    re.IGNORECASE,
)
_HEADER_LINE = re.compile(r"^\*?[^\W\d_][\w .-]{1,20}:\*?(?: |$)")
_SENDER_LINE = re.compile(r"^\*?(?:From|Von|De|Da|Van|Från|Fra|Od|От|发件人|差出人):\*?\s", re.IGNORECASE)
_FORWARDED = re.compile(r"^\s*(?:fwd?|wg|tr|rv|i|vs|doorst|enc)\s*:", re.IGNORECASE)
_BLANK_LINES = re.compile(r"\n{3,}")
_QUOTE_SELECTORS = (
    "blockquote[type=cite], .gmail_quote, .gmail_extra, .yahoo_quoted, .moz-cite-prefix, .protonmail_quote,"
    " #divRplyFwdMsg, #appendonsend, #mail-editor-reference-message-container, #isForwardContent"
)
_INVISIBLE = "script, style, head, title, template, noscript, object, svg, [hidden]"
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?!\.?[1-9])", re.IGNORECASE)
_BLOCKS = (
    "address", "article", "aside", "blockquote", "center", "div", "dl", "dt", "dd", "figure", "footer", "form",
    "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "main", "nav", "ol", "pre", "section", "table", "tr", "ul",
)  # fmt: skip
_SPACING = dict.fromkeys(_BLOCKS, ("\n", "\n")) | {
    "p": ("\n\n", "\n"),
    "li": ("\n- ", "\n"),
    "br": ("\n", ""),
    "td": ("", " "),
    "th": ("", " "),
}
_MAX_HTML = 2 * 1024 * 1024  # characters; mails of people are far smaller
_MAX_DEPTH = 200
_DEEPEST_TREE = 1000  # elements; the parser takes quadratic time for deep trees, seconds for 50,000
_ANY_TAG = re.compile(r"<[^<>]*>")
_ATTRIBUTION_LINES = 3
_DATE_OR_TIME = re.compile(r"\d{4}|\d[:.]\d\d")
_ADDRESS_OR_DIGIT = re.compile(r"[\d@]")
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


def read_text(mail: EmailMessage, *, is_reply: bool) -> str:
    """Return what the author wrote; quotes of earlier mails are removed from a reply, not from a forwarded mail."""
    is_forwarded = bool(_FORWARDED.match(str(mail.get("Subject", ""))))
    strips_quotes = is_reply and not is_forwarded
    text = _read_plain(mail)
    if not text.strip():
        html = _read_part(mail.get_body(("html",)))
        text = html_to_text(html, strips_quotes=strips_quotes) if html else ""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if strips_quotes:
        text = strip_quotes(text)
    return _BLANK_LINES.sub("\n\n", _strip_signature(text)).strip()


def strip_quotes(text: str) -> str:
    """Return a reply without the mail that it quotes at its end; quotes between answers stay."""
    lines = _cut_original(text.split("\n"))
    text = "\n".join(lines)
    lines = text.rstrip().split("\n")
    end = len(lines)
    while end and (lines[end - 1].startswith(">") or not lines[end - 1].strip()):
        end -= 1
    if end == len(lines):
        return text
    return "\n".join(_drop_attribution(lines[:end]))


def html_to_text(html: str, *, strips_quotes: bool) -> str:
    """Return the visible text of HTML, with links and lists in Markdown."""
    from selectolax.lexbor import LexborHTMLParser  # noqa: PLC0415 (loaded for mail without plain text)

    html = html[:_MAX_HTML]
    if is_nested_deeper(html, _DEEPEST_TREE):
        return " ".join(_ANY_TAG.sub(" ", html).split())
    tree = LexborHTMLParser(html)
    for selector in (_INVISIBLE, _QUOTE_SELECTORS) if strips_quotes else (_INVISIBLE,):
        for node in tree.css(selector):
            node.decompose()
    for node in tree.css("[style]"):
        if _HIDDEN_STYLE.search(node.attributes.get("style") or ""):
            node.decompose()
    text = "".join(_collect_text(tree.body, 0)) if tree.body is not None else ""
    return "\n".join(line.strip(" ") for line in text.replace("\xa0", " ").split("\n")).strip()


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


def read_mail(data: bytes, at: datetime, location: str, settings: EmailSettings) -> ReceivedMail:
    """Return what a person wrote; ``location`` identifies the mail in the mailbox. Raises `IgnoredMail`."""
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
        attachments=tuple(_list_attachments(mail, location)),
        message_id=message_id,
        reply_to=earlier[-1] if earlier else "",
        chat_name=subject,
        addressed=_is_addressed(mail, settings.address),
    )
    references = list(dict.fromkeys([*earlier, message_id]))
    selected = [references[0], *references[1:][-_MAX_REFERENCES:]]
    return ReceivedMail(incoming, MailThread(subject, tuple(selected)))


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


def _collect_text(node: "LexborNode", depth: int) -> Iterator[str]:
    if node.tag == "-text":
        yield re.sub(r"\s+", " ", node.text(deep=False) or "")
        return
    before, after = _SPACING.get(node.tag or "", ("", ""))
    yield before
    child = node.child if depth < _MAX_DEPTH else None
    while child is not None:
        yield from _collect_text(child, depth + 1)
        child = child.next
    if node.tag == "a" and (target := _choose_link_target(node.attributes.get("href") or "", node.text())):
        yield f" ({target})"
    yield after


def _choose_link_target(target: str, shown: str) -> str:
    """Return the address of a link, unless it is what the link shows."""
    is_web = target.startswith(("http://", "https://"))
    return target if is_web and target.rstrip("/") != shown.strip().rstrip("/") else ""


def _read_plain(mail: EmailMessage) -> str:
    part = mail.get_body(("plain",))
    text = _read_part(part)
    if part is not None and (part.get_param("format") or "") == "flowed":
        return _unflow(text, is_deleting=part.get_param("delsp") == "yes")
    return text


def _read_part(part: MIMEPart | None) -> str:
    """Return the text of a part, with any characters that its encoding doesn't explain replaced."""
    if part is None:
        return ""
    data = part.get_payload(decode=True)
    if not isinstance(data, bytes):
        return ""
    try:
        return data.decode(part.get_content_charset() or "utf-8", "strict")
    except (LookupError, UnicodeError):
        return data.decode("utf-8", "replace")


def _unflow(text: str, *, is_deleting: bool) -> str:
    """Join wrapped lines (RFC 3676): those that end with a space, at the same depth of quotes."""
    joined: list[str] = []
    open_depth = -1
    for line in text.replace("\r\n", "\n").split("\n"):
        rest = line.lstrip(">")
        depth = len(line) - len(rest)
        rest = rest.removeprefix(" ")
        if open_depth == depth and rest != "-- ":
            joined[-1] += rest
        else:
            joined.append(f"{'>' * depth}{' ' if depth else ''}{rest}")
        open_depth = depth if rest.endswith(" ") and rest != "-- " else -1
        if open_depth >= 0 and is_deleting:
            joined[-1] = joined[-1][:-1]
    return "\n".join(joined)


def _cut_original(lines: list[str]) -> list[str]:
    """Return lines up to the separator or the headers that Outlook puts above a quoted mail."""
    for index, line in enumerate(lines):
        is_header = (
            _SENDER_LINE.match(line) and sum(bool(_HEADER_LINE.match(one)) for one in lines[index : index + 6]) >= 3
        )
        if is_header or _SEPARATOR.fullmatch(line.strip()):
            return lines[:index]
    return lines


def _drop_attribution(lines: list[str]) -> list[str]:
    """Return lines without those at their end, wrapped or not, that say who wrote what is quoted next."""
    if not lines or not lines[-1].rstrip().endswith(":"):
        return lines
    last = list(itertools.takewhile(str.strip, reversed(lines[-_ATTRIBUTION_LINES:])))
    for pattern in (_DATE_OR_TIME, _ADDRESS_OR_DIGIT):
        for count, line in enumerate(last, 1):
            if pattern.search(line):
                return lines[:-count]
    return lines


def _strip_signature(text: str) -> str:
    if found := _SIGNATURE.search(text):
        text = text[: found.start()]
    before, _, last = text.rstrip().rpartition("\n")
    return before if _DEVICE.match(last.strip()) else text


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


def _list_attachments(mail: EmailMessage, location: str) -> Iterator[Attachment]:
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
        yield Attachment(f"{location}/{index}", kind, name or _choose_default_name(media_type), media_type, size)  # type: ignore[arg-type] # a literal


def _is_inside_mail(mail: EmailMessage, part: EmailMessage) -> bool:
    """Return whether a part belongs to a mail that is itself attached."""
    attached = [one for one in mail.walk() if one is not mail and one.get_content_type() == "message/rfc822"]
    return any(part is not one and any(part is inner for inner in one.walk()) for one in attached)


def _choose_default_name(media_type: str) -> str:
    return "mail.eml" if media_type == "message/rfc822" else ""


def _read_content(part: EmailMessage) -> bytes:
    if part.get_content_type() == "message/rfc822":
        return b"".join(one.as_bytes() for one in part.iter_parts())
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""

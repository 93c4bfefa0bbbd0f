"""The text of a mail as its author wrote it: from plain text or HTML, without quotes and signatures."""

import itertools
import re
from collections.abc import Iterator
from email.message import EmailMessage, MIMEPart
from typing import TYPE_CHECKING

from talaria.core.text_formats import is_nested_deeper

if TYPE_CHECKING:  # loaded for mail without plain text
    from selectolax.lexbor import LexborNode

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
    if node.tag == "a" and (target := _link_target(node.attributes.get("href") or "", node.text())):
        yield f" ({target})"
    yield after


def _link_target(target: str, shown: str) -> str:
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

"""Translate messages into event contents."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any
from urllib.parse import urlsplit

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token

from talaria.contracts.platform import Content
from talaria.core.addresses import Address
from talaria.core.errors import Rejected
from talaria.platforms.matrix.events import BUTTONS

_READER = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
_SCHEMES = frozenset({"https", "http", "ftp", "mailto", "magnet"})
_ATTRIBUTES = {"a": {"href"}, "ol": {"start"}}
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")
TEXT_LIMIT = 20_000
EVENT_LIMIT = 60_000  # of 65,536 bytes that an event may have with all that servers add to it
ENCRYPTED_LIMIT = 44_000  # what is left of these when four bytes stand for three
_LABEL_LIMIT = 60
_EXCERPT = 200
_USER_ID = re.compile(r"(?<![\w@/])@[a-z0-9._=/+-]+:[A-Za-z0-9.-]+[A-Za-z0-9](?::\d+)?")
_KINDS = {"image": "m.image", "audio": "m.audio", "video": "m.video"}
Json = dict[str, Any]


def clean(text: str) -> str:
    """Return a text without control characters and lone surrogates."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def to_html(source: str) -> str:
    """Return a text as HTML, or an empty string if plain text is enough."""
    tokens = [_restrict_token(token) for token in _READER.parse(source)]
    html = str(_READER.renderer.render(tokens, _READER.options, {})).strip()
    plain = "<br />\n".join(escape(line) for line in source.strip().splitlines())
    return "" if html == f"<p>{plain}</p>" else html


def _restrict_token(token: Token) -> Token:
    """Return a token without attributes and links that clients don't support."""
    token.attrs = {name: value for name, value in token.attrs.items() if name in _ATTRIBUTES.get(token.tag, ())}
    if token.type == "fence":
        language = _LANGUAGE.match(token.info.strip())
        token.info = language[0] if language else ""
    if token.tag == "s":
        token.tag = "del"
    if token.children is not None and token.type == "inline":
        token.children = list(_restrict_inline(token.children))
    return token


def _restrict_inline(tokens: Sequence[Token]) -> Iterator[Token]:
    open_links: list[bool] = []  # whether each open link has a target
    for token in tokens:
        if token.type == "image":
            yield from _make_picture_tokens(token, inside_link=bool(open_links))
            continue
        if token.type == "link_open":
            open_links.append(_is_linkable(str(token.attrGet("href") or "")))
            token.hidden = not open_links[-1]
        elif token.type == "link_close":
            token.hidden = not (open_links and open_links.pop())
        if not token.hidden:
            yield _restrict_token(token)


def _make_picture_tokens(token: Token, *, inside_link: bool) -> Iterator[Token]:
    """Yield a link instead of an image: clients load only images on a homeserver."""
    address = str(token.attrGet("src") or "")
    linked = not inside_link and _is_linkable(address)
    if linked:
        yield Token("link_open", "a", 1, attrs={"href": address})
    yield Token("text", "", 0, content=token.content or address)
    if linked:
        yield Token("link_close", "a", -1)


def _is_linkable(address: str) -> bool:
    try:
        return urlsplit(address).scheme.lower() in _SCHEMES
    except ValueError:
        return False


def check_text(content: Content) -> None:
    """Raise `Rejected` for an empty or too long message."""
    if not content.text.strip() and not content.files:
        raise Rejected("there is nothing to send")
    if len(clean(content.text).encode()) > TEXT_LIMIT:
        raise Rejected(f"the text is longer than {TEXT_LIMIT} bytes")


def transaction_id(key: str, part: str = "") -> str:
    """Return the transaction id under which a homeserver accepts a message once, fixed per key and part."""
    return "talaria-" + hashlib.sha256(f"{key}\x00{part}".encode("utf-8", "surrogatepass")).hexdigest()[:40]


def message_content(content: Content, to: Address, *, asker: str = "", limit: int = EVENT_LIMIT) -> Json:
    """Return the content of a message with its formatting, thread and buttons; it mentions the asker."""
    event_content = _make_text_content(content.text, limit)
    people = [*([asker] if asker else []), *_USER_ID.findall(content.text)]
    event_content["m.mentions"] = {"user_ids": list(dict.fromkeys(people))} if people else {}
    relation = relates_to(to.thread_id, content.reply_to)
    if relation:
        event_content["m.relates_to"] = relation
    if content.buttons:
        event_content[BUTTONS] = [{"label": one.label[:_LABEL_LIMIT], "value": one.value} for one in content.buttons]
    return event_content


def edit_content(content: Content, message_id: str, *, limit: int = EVENT_LIMIT) -> Json:
    """Return the content that replaces a message, without a second notification."""
    event_content = _make_text_content(content.text, limit - 4 * _EXCERPT - 500)
    return {
        "msgtype": "m.text",
        "body": f"* {clean(content.text)[:_EXCERPT]}",
        "m.mentions": {},
        "m.new_content": event_content | {"m.mentions": {}},
        "m.relates_to": {"rel_type": "m.replace", "event_id": message_id},
    }


def file_content(name: str, media_type: str, size: int, uploaded: Json, relation: Json) -> Json:
    """Return the content that shows a file; ``uploaded`` is its URL, optionally with a key."""
    kind = _KINDS.get(media_type.partition("/")[0], "m.file")
    info = {"mimetype": media_type, "size": size}
    file_event: Json = {"msgtype": kind, "body": name, "filename": name, "info": info, "m.mentions": {}, **uploaded}
    return file_event | ({"m.relates_to": relation} if relation else {})


def reaction_content(message_id: str, label: str) -> Json:
    """Return the content of a reaction, which represents a button."""
    return {"m.relates_to": {"rel_type": "m.annotation", "event_id": message_id, "key": label[:_LABEL_LIMIT]}}


def relates_to(thread: str, reply_to: str) -> Json:
    """Return the relation of a message; clients without threads see an answer to the thread's root."""
    reply_relation = {"m.in_reply_to": {"event_id": reply_to or thread}}
    if not thread:
        return reply_relation if reply_to else {}
    falling_back = not reply_to or reply_to == thread
    return {"rel_type": "m.thread", "event_id": thread, "is_falling_back": falling_back, **reply_relation}


def _make_text_content(text: str, limit: int) -> Json:
    """Return a text in plain and, if there is room for both, formatted."""
    body = clean(text)
    plain: Json = {"msgtype": "m.text", "body": body}
    html = to_html(body)
    formatted = plain | {"format": "org.matrix.custom.html", "formatted_body": html}
    return formatted if html and len(msgspec.json.encode(formatted)) <= limit else plain

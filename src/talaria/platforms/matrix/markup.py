"""Markdown into the HTML that Matrix clients show; whatever else stands in it is text."""

import re
from collections.abc import Iterator, Sequence
from html import escape
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token

_READER = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable(["table", "strikethrough"])
_SCHEMES = frozenset({"https", "http", "ftp", "mailto", "magnet"})
_ATTRIBUTES = {"a": {"href"}, "ol": {"start"}}
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff]")


def clean(text: str) -> str:
    """Return a text without what no message may hold: control characters and halves of characters."""
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def to_html(source: str) -> str:
    """Return a text as HTML, or an empty string where it has no marks that plain text would lack."""
    tokens = [_tamed(token) for token in _READER.parse(source)]
    html = str(_READER.renderer.render(tokens, _READER.options, {})).strip()
    plain = "<br />\n".join(escape(line) for line in source.strip().splitlines())
    return "" if html == f"<p>{plain}</p>" else html


def _tamed(token: Token) -> Token:
    """Return a token without attributes and links that clients have no use for."""
    token.attrs = {name: value for name, value in token.attrs.items() if name in _ATTRIBUTES.get(token.tag, ())}
    if token.type == "fence":
        language = _LANGUAGE.match(token.info.strip())
        token.info = language[0] if language else ""
    if token.tag == "s":
        token.tag = "del"
    if token.children is not None and token.type == "inline":
        token.children = list(_tamed_line(token.children))
    return token


def _tamed_line(tokens: Sequence[Token]) -> Iterator[Token]:
    shown: list[bool] = []  # whether each link that is open leads somewhere
    for token in tokens:
        if token.type == "image":
            yield from _picture(token, inside_link=bool(shown))
            continue
        if token.type == "link_open":
            shown.append(_leads_somewhere(str(token.attrGet("href") or "")))
            token.hidden = not shown[-1]
        elif token.type == "link_close":
            token.hidden = not (shown and shown.pop())
        if not token.hidden:
            yield _tamed(token)


def _picture(token: Token, *, inside_link: bool) -> Iterator[Token]:
    """Yield a link to a picture in its place: clients load none that is not on a homeserver."""
    address = str(token.attrGet("src") or "")
    linked = not inside_link and _leads_somewhere(address)
    if linked:
        yield Token("link_open", "a", 1, attrs={"href": address})
    yield Token("text", "", 0, content=token.content or address)
    if linked:
        yield Token("link_close", "a", -1)


def _leads_somewhere(address: str) -> bool:
    try:
        return urlsplit(address).scheme.lower() in _SCHEMES
    except ValueError:
        return False

"""Convert Markdown to the HTML that Matrix clients show; all other markup stays text."""

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
            yield from _picture_tokens(token, inside_link=bool(open_links))
            continue
        if token.type == "link_open":
            open_links.append(_is_linkable(str(token.attrGet("href") or "")))
            token.hidden = not open_links[-1]
        elif token.type == "link_close":
            token.hidden = not (open_links and open_links.pop())
        if not token.hidden:
            yield _restrict_token(token)


def _picture_tokens(token: Token, *, inside_link: bool) -> Iterator[Token]:
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

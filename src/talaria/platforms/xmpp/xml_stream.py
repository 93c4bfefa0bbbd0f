"""XML of an XMPP stream: stanzas from bytes, and bytes from stanzas.

XMPP forbids documents types, comments and processing instructions, so entity expansion can't happen; sizes are limited.
"""

import re
from collections.abc import Mapping
from xml.etree.ElementTree import Element
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

CLIENT = "jabber:client"
STREAMS = "http://etherx.jabber.org/streams"
_MAX_STANZA = 2 * 1024 * 1024  # bytes
_MAX_DEPTH = 100
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class NotXmpp(Exception):
    """Error of bytes that are no XMPP stream."""


class StanzaParser:
    """Parser of one stream: collects bytes and returns complete stanzas."""

    def __init__(self) -> None:
        self.is_closed = False
        self._open: list[Element] = []
        self._depth = 0
        self._size = 0
        self._stanzas: list[Element] = []
        self._parser = expat.ParserCreate(namespace_separator="}")
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._append_text
        for handler in ("StartDoctypeDeclHandler", "CommentHandler", "ProcessingInstructionHandler"):
            setattr(self._parser, handler, self._refuse)

    def feed(self, data: bytes) -> list[Element]:
        """Return the stanzas that these bytes complete; raises `NotXmpp`."""
        self._size += len(data)
        try:
            self._parser.Parse(data)
        except expat.ExpatError as error:
            raise NotXmpp(str(error)) from error
        if self._size > _MAX_STANZA and self._depth > 1:
            raise NotXmpp("a stanza is too large")
        stanzas, self._stanzas = self._stanzas, []
        return stanzas

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        self._depth += 1
        if self._depth == 1:
            if name != f"{STREAMS}}}stream":
                raise NotXmpp("it doesn't start with a stream")
            return
        if self._depth > _MAX_DEPTH:
            raise NotXmpp("a stanza is nested too deeply")
        element = Element(_format_tag(name), {_format_tag(key): value for key, value in attributes.items()})
        if self._open:
            self._open[-1].append(element)
        self._open.append(element)

    def _end(self, name: str) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.is_closed = True
            return
        element = self._open.pop()
        if not self._open:
            self._stanzas.append(element)
            self._size = 0

    def _append_text(self, text: str) -> None:
        if not self._open:
            return
        parent = self._open[-1]
        if len(parent):
            parent[-1].tail = (parent[-1].tail or "") + text
        else:
            parent.text = (parent.text or "") + text

    def _refuse(self, *_: object) -> None:
        raise NotXmpp("it has something that XMPP forbids")


def make(namespace: str, name: str, attributes: Mapping[str, str] | None = None, *content: Element | str) -> Element:
    """Return an element with text and children; attributes that are empty are left out."""
    element = Element(f"{{{namespace}}}{name}", {key: value for key, value in (attributes or {}).items() if value})
    for one in content:
        if isinstance(one, str):
            element.text = (element.text or "") + one
        else:
            element.append(one)
    return element


def serialize(element: Element, namespace: str = CLIENT) -> str:
    """Return an element as XML inside a parent of a namespace; characters that XML can't have are left out."""
    own, _, name = element.tag[1:].partition("}")
    attributes = "".join(f" {key}={quoteattr(_clean(value))}" for key, value in element.items())
    if own != namespace:
        attributes = f" xmlns={quoteattr(own)}{attributes}"
    content = escape(_clean(element.text or "")) + "".join(serialize(child, own) for child in element)
    return f"<{name}{attributes}>{content}</{name}>" if content else f"<{name}{attributes}/>"


def _clean(text: str) -> str:
    return _NOT_XML.sub("", text)


def _format_tag(name: str) -> str:
    return f"{{{name}" if "}" in name else name

"""Telegram's HTML."""

import re

from msgspec import Struct

from talaria.testing.telegram_server.markup.text import MarkupError, ParsedText, byte_offset, make_link_entity
from talaria.testing.telegram_server.parts import EntityType, MessageEntity

_STYLES: dict[str, EntityType] = {
    "b": "bold", "strong": "bold", "i": "italic", "em": "italic", "u": "underline", "ins": "underline",
    "s": "strikethrough", "strike": "strikethrough", "del": "strikethrough", "tg-spoiler": "spoiler",
    "span": "spoiler", "code": "code", "pre": "pre", "blockquote": "blockquote",
}  # fmt: skip
_SPECIAL_TAGS = {"a", "tg-emoji"}
_NAMED_REFERENCES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
_REFERENCE = re.compile(r"&(?:#(?P<decimal>\d{1,8})|#[xX](?P<hex>[0-9a-fA-F]{1,6})|(?P<name>lt|gt|amp|quot));?")
_TAG = re.compile(r"<(?P<name>[^\s>]*)(?P<attributes>(?:[^>\"']|\"[^\"]*\"|'[^']*')*)>")
_ATTRIBUTE = re.compile(r"([^\s=/]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([a-zA-Z0-9.-]+)))?")


class _Open(Struct, frozen=True):
    """An open tag."""

    name: str
    offset: int
    value: str


def parse_html(source: str) -> tuple[str, list[MessageEntity]]:
    """Return plain text and entities, or raise `MarkupError` with Telegram's sentence."""
    return _Html(source).read()


class _Html:
    def __init__(self, source: str) -> None:
        self._source = source
        self._place = 0
        self._out = ParsedText()
        self._open: list[_Open] = []

    def read(self) -> tuple[str, list[MessageEntity]]:
        while self._place < len(self._source):
            self._step()
        if self._open:
            raise MarkupError(f'Can\'t find end tag corresponding to start tag "{self._open[-1].name}"')
        return self._out.text, self._out.entities

    def _step(self) -> None:
        character = self._source[self._place]
        if character == "&":
            written, self._place = _reference(self._source, self._place)
            self._out.write(written)
        elif character != "<":
            self._out.write(character)
            self._place += 1
        elif self._source.startswith("</", self._place):
            self._end()
        else:
            self._begin()

    def _begin(self) -> None:
        at = byte_offset(self._source, self._place)
        tag = _TAG.match(self._source, self._place)
        name = re.match(r"[^\s>]*", self._source[self._place + 1 :])
        spelled = name[0].lower() if name else ""
        if tag is None and self._place + 1 + len(spelled) >= len(self._source):
            raise MarkupError(f"Unclosed start tag at byte offset {at}")
        if spelled not in _STYLES and spelled not in _SPECIAL_TAGS:
            raise MarkupError(f'Unsupported start tag "{spelled}" at byte offset {at}')
        if tag is None:
            raise MarkupError(f'Unclosed start tag "{spelled}" at byte offset {at}')
        self._open.append(_Open(spelled, self._out.length, _value(spelled, tag["attributes"], at)))
        self._place = tag.end()

    def _end(self) -> None:
        at = byte_offset(self._source, self._place)
        if not self._open:
            raise MarkupError(f"Unexpected end tag at byte offset {at}")
        end = re.compile(r"</([^\s>]*)\s*>").match(self._source, self._place)
        if end is None:
            raise MarkupError(f"Unclosed end tag at byte offset {at}")
        one = self._open.pop()
        if end[1] and end[1].lower() != one.name:
            raise MarkupError(
                f'Unmatched end tag at byte offset {at}, expected "</{one.name}>", found "</{end[1].lower()}>"'
            )
        self._place = end.end()
        self._close(one)

    def _close(self, one: _Open) -> None:
        length = self._out.length - one.offset
        if one.name == "a":
            entity = make_link_entity(one.value or self._out.since(one.offset), one.offset, length)
        elif one.name == "tg-emoji":
            entity = MessageEntity(type="custom_emoji", offset=one.offset, length=length, custom_emoji_id=one.value)
        elif one.name == "blockquote" and one.value:
            entity = MessageEntity(type="expandable_blockquote", offset=one.offset, length=length)
        elif one.name == "code":
            entity = MessageEntity(type="code", offset=one.offset, length=length, language=one.value or None)
        else:
            entity = MessageEntity(type=_STYLES[one.name], offset=one.offset, length=length)
        if one.name == "pre":
            entity = self._block(entity)
        elif one.name == "code" and entity is not None and not (self._open and self._open[-1].name == "pre"):
            entity = MessageEntity(type="code", offset=one.offset, length=length)
        if entity is not None:
            self._out.close(entity)

    def _block(self, entity: MessageEntity | None) -> MessageEntity | None:
        """Take the language of the code that fills a block, and let the block stand for both."""
        last = self._out.entities[-1] if self._out.entities else None
        if entity is None or last is None or last.type != "code":
            return entity
        if (last.offset, last.length) != (entity.offset, entity.length):
            return entity
        self._out.entities.pop()
        return MessageEntity(type="pre", offset=entity.offset, length=entity.length, language=last.language)


def _reference(source: str, place: int) -> tuple[str, int]:
    """Return the character of a reference at this position, and the position after it."""
    found = _REFERENCE.match(source, place)
    if found is None:
        return "&", place + 1
    if found["name"]:
        return _NAMED_REFERENCES[found["name"]], found.end()
    code = int(found["decimal"]) if found["decimal"] else int(found["hex"], 16)
    if not 0 < code < 0x10FFFF or 0xD800 <= code < 0xE000:
        return "&", place + 1
    return chr(code), found.end()


def _value(name: str, attributes: str, at: int) -> str:
    """Return what matters of a tag's attributes, or raise `MarkupError` where it must have one."""
    values = {
        found[1].lower(): _decode_references(found[2] or found[3] or found[4] or "")
        for found in _ATTRIBUTE.finditer(attributes)
    }
    if name == "a":
        return values.get("href", "")
    if name == "code":
        language = values.get("class", "")
        return language.removeprefix("language-") if language.startswith("language-") else ""
    if name == "blockquote":
        return "expandable" if "expandable" in values else ""
    if name == "tg-emoji":
        if not values.get("emoji-id", "").isdigit():
            raise MarkupError("Invalid custom emoji identifier specified")
        return values["emoji-id"]
    if name == "span" and values.get("class") != "tg-spoiler":
        raise MarkupError(f'Tag "span" must have class "tg-spoiler" at byte offset {at}')
    return ""


def _decode_references(text: str) -> str:
    pieces, place = [], 0
    while place < len(text):
        if text[place] == "&":
            piece, place = _reference(text, place)
        else:
            piece, place = text[place], place + 1
        pieces.append(piece)
    return "".join(pieces)

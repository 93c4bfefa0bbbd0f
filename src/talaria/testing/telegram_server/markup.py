"""Telegram's two markups, HTML and MarkdownV2, parsed as strictly as Telegram does."""

import re
from collections.abc import Sequence

from msgspec import Struct

from talaria.testing.telegram_server.entities import (
    MarkupError,
    ParsedText,
    add_found_entities,
    byte_offset,
    check_entities,
    make_link_entity,
    trim_text,
)
from talaria.testing.telegram_server.parts import EntityType, MessageEntity
from talaria.testing.telegram_server.refusals import bad_request

_TAG_STYLES: dict[str, EntityType] = {
    "b": "bold", "strong": "bold", "i": "italic", "em": "italic", "u": "underline", "ins": "underline",
    "s": "strikethrough", "strike": "strikethrough", "del": "strikethrough", "tg-spoiler": "spoiler",
    "span": "spoiler", "code": "code", "pre": "pre", "blockquote": "blockquote",
}  # fmt: skip
_SPECIAL_TAGS = {"a", "tg-emoji"}
_NAMED_REFERENCES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
_REFERENCE = re.compile(r"&(?:#(?P<decimal>\d{1,8})|#[xX](?P<hex>[0-9a-fA-F]{1,6})|(?P<name>lt|gt|amp|quot));?")
_TAG = re.compile(r"<(?P<name>[^\s>]*)(?P<attributes>(?:[^>\"']|\"[^\"]*\"|'[^']*')*)>")
_ATTRIBUTE = re.compile(r"([^\s=/]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([a-zA-Z0-9.-]+)))?")
_RESERVED = frozenset("_*[]()~`>#+-=|{}.!")
_MARK_STYLES: dict[str, EntityType] = {
    "*": "bold", "_": "italic", "__": "underline", "~": "strikethrough", "||": "spoiler", "`": "code", "```": "pre",
    "[": "text_link", "![": "custom_emoji", ">": "blockquote",
}  # fmt: skip
_TITLES = {
    "*": "Bold", "_": "Italic", "__": "Underline", "~": "Strikethrough", "||": "Spoiler", "`": "Code", "```": "Pre",
    "[": "TextUrl", "![": "CustomEmoji", ">": "BlockQuote",
}  # fmt: skip
_ENDINGS = {"[": "]", "![": "]"}


class _OpenTag(Struct, frozen=True):
    """An open tag."""

    name: str
    offset: int
    value: str


def read_text(
    text: str, parse_mode: str | None, entities: Sequence[MessageEntity] | None
) -> tuple[str, tuple[MessageEntity, ...]]:
    """Return text and entities as they will be shown, or refuse what is broken."""
    if parse_mode:
        parser = _PARSERS.get(parse_mode.lower())
        if parser is None:
            raise bad_request("unsupported parse_mode")
        try:
            text, entities = parser(text)
        except MarkupError as error:
            raise bad_request(f"can't parse entities: {error}") from error
    else:
        entities = check_entities(text, entities or ())
    text, entities = trim_text(text, entities)
    return text, add_found_entities(text, entities)


def parse_html(source: str) -> tuple[str, list[MessageEntity]]:
    """Return plain text and entities, or raise `MarkupError` with Telegram's sentence."""
    return _Html(source).read()


class _Html:
    def __init__(self, source: str) -> None:
        self._source = source
        self._position = 0
        self._out = ParsedText()
        self._open: list[_OpenTag] = []

    def read(self) -> tuple[str, list[MessageEntity]]:
        while self._position < len(self._source):
            self._step()
        if self._open:
            raise MarkupError(f'Can\'t find end tag corresponding to start tag "{self._open[-1].name}"')
        return self._out.text, self._out.entities

    def _step(self) -> None:
        character = self._source[self._position]
        if character == "&":
            written, self._position = _decode_reference(self._source, self._position)
            self._out.write(written)
        elif character != "<":
            self._out.write(character)
            self._position += 1
        elif self._source.startswith("</", self._position):
            self._end()
        else:
            self._begin()

    def _begin(self) -> None:
        at = byte_offset(self._source, self._position)
        tag = _TAG.match(self._source, self._position)
        name = re.match(r"[^\s>]*", self._source[self._position + 1 :])
        spelled = name[0].lower() if name else ""
        if tag is None and self._position + 1 + len(spelled) >= len(self._source):
            raise MarkupError(f"Unclosed start tag at byte offset {at}")
        if spelled not in _TAG_STYLES and spelled not in _SPECIAL_TAGS:
            raise MarkupError(f'Unsupported start tag "{spelled}" at byte offset {at}')
        if tag is None:
            raise MarkupError(f'Unclosed start tag "{spelled}" at byte offset {at}')
        self._open.append(_OpenTag(spelled, self._out.length, _read_value(spelled, tag["attributes"], at)))
        self._position = tag.end()

    def _end(self) -> None:
        at = byte_offset(self._source, self._position)
        if not self._open:
            raise MarkupError(f"Unexpected end tag at byte offset {at}")
        end = re.compile(r"</([^\s>]*)\s*>").match(self._source, self._position)
        if end is None:
            raise MarkupError(f"Unclosed end tag at byte offset {at}")
        one = self._open.pop()
        if end[1] and end[1].lower() != one.name:
            raise MarkupError(
                f'Unmatched end tag at byte offset {at}, expected "</{one.name}>", found "</{end[1].lower()}>"'
            )
        self._position = end.end()
        self._close(one)

    def _close(self, one: _OpenTag) -> None:
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
            entity = MessageEntity(type=_TAG_STYLES[one.name], offset=one.offset, length=length)
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


class _OpenStyle(Struct):
    """An open style: its mark, its position, the start of its text."""

    mark: str
    position: int
    offset: int
    language: str = ""


def parse_markdown(source: str) -> tuple[str, list[MessageEntity]]:
    """Return plain text and entities, or raise `MarkupError` with Telegram's sentence."""
    return _Markdown(source).read()


class _Markdown:
    def __init__(self, source: str) -> None:
        self._source = source
        self._position = 0
        self._out = ParsedText()
        self._open: list[_OpenStyle] = []

    def read(self) -> tuple[str, list[MessageEntity]]:
        while self._position < len(self._source):
            self._step()
        if self._open and self._open[-1].mark == ">":
            self._close_quote("blockquote")
        if self._open:
            last = self._open[-1]
            title = "PreCode" if last.language else _TITLES[last.mark]
            raise MarkupError(
                f"Can't find end of {title} entity at byte offset {byte_offset(self._source, last.position)}"
            )
        return self._out.text, self._out.entities

    def _step(self) -> None:
        character = self._source[self._position]
        following = self._source[self._position + 1 : self._position + 2]
        if character == "\\" and following and 0 < ord(following) <= 126:
            self._out.write(following)
            self._position += 2
        elif self._is_literal() and character != "`":
            self._write(character)
        elif character == "\n" and any(one.mark == ">" for one in self._open):
            self._end_line()
        elif character not in _RESERVED:
            self._write(character)
        elif self._is_at_ending():
            self._end()
        else:
            self._begin(character)

    def _write(self, character: str) -> None:
        self._out.write(character)
        self._position += 1

    def _is_literal(self) -> bool:
        return bool(self._open) and self._open[-1].mark in ("`", "```")

    def _is_at_ending(self) -> bool:
        if not self._open:
            return False
        mark = self._open[-1].mark
        ending = _ENDINGS.get(mark, mark)
        if mark == ">" or not self._source.startswith(ending, self._position):
            return False
        return not (mark == "_" and self._source.startswith("__", self._position))

    def _end(self) -> None:
        one = self._open.pop()
        self._position += len(_ENDINGS.get(one.mark, one.mark))
        length = self._out.length - one.offset
        if one.mark in _ENDINGS:
            target = self._read_target() or (self._out.since(one.offset) if one.mark == "[" else "")
            self._link(one, length, target)
            return
        self._out.close(
            MessageEntity(type=_MARK_STYLES[one.mark], offset=one.offset, length=length, language=one.language or None)
        )

    def _link(self, one: _OpenStyle, length: int, target: str) -> None:
        entity = make_link_entity(target, one.offset, length, emoji=one.mark == "![")
        if entity is not None:
            self._out.close(entity)
        elif one.mark == "![":
            raise MarkupError("Custom emoji entity must contain a tg://emoji URL")

    def _read_target(self) -> str:
        if not self._source.startswith("(", self._position):
            return ""
        begin = self._position + 1
        position, target = begin, []
        while position < len(self._source) and self._source[position] != ")":
            if self._source[position] == "\\" and position + 1 < len(self._source):
                position += 1
            target.append(self._source[position])
            position += 1
        if position >= len(self._source):
            raise MarkupError(f"Can't find end of a URL at byte offset {byte_offset(self._source, begin)}")
        self._position = position + 1
        return "".join(target)

    def _begin(self, character: str) -> None:
        if self._is_literal():
            self._refuse(character)
        rest = self._source[self._position : self._position + 3]
        if character == ">" or (rest == "**>" and self._is_at_line_start()):
            self._begin_quote(rest)
            return
        if rest.startswith("||") and self._is_at_quote_end():
            self._position += 2
            self._close_quote("expandable_blockquote")
            return
        mark = next((one for one in ("```", "__", "||", "![") if rest.startswith(one)), character)
        if mark not in _MARK_STYLES or mark == ">":
            self._refuse(character)
        one = _OpenStyle(mark, self._position, self._out.length)
        self._position += len(mark)
        if mark == "```":
            one.language = self._read_language()
        self._open.append(one)

    def _read_language(self) -> str:
        """Read the language of a block of code and skip the first line break."""
        end = self._position
        while end < len(self._source) and not self._source[end].isspace() and self._source[end] != "`":
            end += 1
        language = ""
        if end > self._position and end < len(self._source) and self._source[end] != "`":
            language = self._source[self._position : end]
            self._position = end
        if self._source.startswith(("\r\n", "\n\r"), self._position):
            self._position += 2
        elif self._source.startswith(("\n", "\r"), self._position):
            self._position += 1
        return language

    def _refuse(self, character: str) -> None:
        raise MarkupError(f"Character '{character}' is reserved and must be escaped with the preceding '\\'")

    def _is_at_line_start(self) -> bool:
        return self._position == 0 or self._source[self._position - 1] == "\n"

    def _begin_quote(self, rest: str) -> None:
        if not self._is_at_line_start():
            self._refuse(">")
        if any(one.mark == ">" for one in self._open):
            self._position += 1
            return
        self._open.append(_OpenStyle(">", self._position, self._out.length))
        self._position += len(rest) if rest == "**>" else 1

    def _end_line(self) -> None:
        following = self._source[self._position + 1 : self._position + 2]
        if following != ">":
            if self._open[-1].mark != ">":
                last = self._open[-1]
                position = byte_offset(self._source, last.position)
                raise MarkupError(f"Can't find end of {_TITLES[last.mark]} entity at byte offset {position}")
            self._close_quote("blockquote")
        self._write("\n")

    def _is_at_quote_end(self) -> bool:
        after = self._source[self._position + 2 : self._position + 3]
        return bool(self._open) and self._open[-1].mark == ">" and after in ("", "\n")

    def _close_quote(self, kind: EntityType) -> None:
        one = self._open.pop()
        self._out.close(MessageEntity(type=kind, offset=one.offset, length=self._out.length - one.offset))


def _decode_reference(source: str, position: int) -> tuple[str, int]:
    """Return the character of a reference at this position, and the position after it."""
    found = _REFERENCE.match(source, position)
    if found is None:
        return "&", position + 1
    if found["name"]:
        return _NAMED_REFERENCES[found["name"]], found.end()
    code = int(found["decimal"]) if found["decimal"] else int(found["hex"], 16)
    if not 0 < code < 0x10FFFF or 0xD800 <= code < 0xE000:
        return "&", position + 1
    return chr(code), found.end()


def _read_value(name: str, attributes: str, at: int) -> str:
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
    pieces, position = [], 0
    while position < len(text):
        if text[position] == "&":
            piece, position = _decode_reference(text, position)
        else:
            piece, position = text[position], position + 1
        pieces.append(piece)
    return "".join(pieces)


_PARSERS = {"markdownv2": parse_markdown, "html": parse_html}

"""MarkdownV2."""

from msgspec import Struct

from talaria.testing.telegram_server.markup.text import MarkupError, ParsedText, byte_offset, make_link_entity
from talaria.testing.telegram_server.parts import EntityType, MessageEntity

_RESERVED = frozenset("_*[]()~`>#+-=|{}.!")
_STYLES: dict[str, EntityType] = {
    "*": "bold", "_": "italic", "__": "underline", "~": "strikethrough", "||": "spoiler", "`": "code", "```": "pre",
    "[": "text_link", "![": "custom_emoji", ">": "blockquote",
}  # fmt: skip
_TITLES = {
    "*": "Bold", "_": "Italic", "__": "Underline", "~": "Strikethrough", "||": "Spoiler", "`": "Code", "```": "Pre",
    "[": "TextUrl", "![": "CustomEmoji", ">": "BlockQuote",
}  # fmt: skip
_ENDINGS = {"[": "]", "![": "]"}


class _Open(Struct):
    """An open style: its mark, its position, the start of its text."""

    mark: str
    place: int
    offset: int
    language: str = ""


def parse_markdown(source: str) -> tuple[str, list[MessageEntity]]:
    """Return plain text and entities, or raise `MarkupError` with Telegram's sentence."""
    return _Markdown(source).read()


class _Markdown:
    def __init__(self, source: str) -> None:
        self._source = source
        self._place = 0
        self._out = ParsedText()
        self._open: list[_Open] = []

    def read(self) -> tuple[str, list[MessageEntity]]:
        while self._place < len(self._source):
            self._step()
        if self._open and self._open[-1].mark == ">":
            self._close_quote("blockquote")
        if self._open:
            last = self._open[-1]
            title = "PreCode" if last.language else _TITLES[last.mark]
            raise MarkupError(
                f"Can't find end of {title} entity at byte offset {byte_offset(self._source, last.place)}"
            )
        return self._out.text, self._out.entities

    def _step(self) -> None:
        character = self._source[self._place]
        following = self._source[self._place + 1 : self._place + 2]
        if character == "\\" and following and 0 < ord(following) <= 126:
            self._out.write(following)
            self._place += 2
        elif self._is_literal() and character != "`":
            self._write(character)
        elif character == "\n" and any(one.mark == ">" for one in self._open):
            self._end_line()
        elif character not in _RESERVED:
            self._write(character)
        elif self._ends():
            self._end()
        else:
            self._begin(character)

    def _write(self, character: str) -> None:
        self._out.write(character)
        self._place += 1

    def _is_literal(self) -> bool:
        return bool(self._open) and self._open[-1].mark in ("`", "```")

    def _ends(self) -> bool:
        if not self._open:
            return False
        mark = self._open[-1].mark
        ending = _ENDINGS.get(mark, mark)
        if mark == ">" or not self._source.startswith(ending, self._place):
            return False
        return not (mark == "_" and self._source.startswith("__", self._place))

    def _end(self) -> None:
        one = self._open.pop()
        self._place += len(_ENDINGS.get(one.mark, one.mark))
        length = self._out.length - one.offset
        if one.mark in _ENDINGS:
            target = self._target() or (self._out.since(one.offset) if one.mark == "[" else "")
            self._link(one, length, target)
            return
        self._out.close(
            MessageEntity(type=_STYLES[one.mark], offset=one.offset, length=length, language=one.language or None)
        )

    def _link(self, one: _Open, length: int, target: str) -> None:
        entity = make_link_entity(target, one.offset, length, emoji=one.mark == "![")
        if entity is not None:
            self._out.close(entity)
        elif one.mark == "![":
            raise MarkupError("Custom emoji entity must contain a tg://emoji URL")

    def _target(self) -> str:
        if not self._source.startswith("(", self._place):
            return ""
        begin = self._place + 1
        place, target = begin, []
        while place < len(self._source) and self._source[place] != ")":
            if self._source[place] == "\\" and place + 1 < len(self._source):
                place += 1
            target.append(self._source[place])
            place += 1
        if place >= len(self._source):
            raise MarkupError(f"Can't find end of a URL at byte offset {byte_offset(self._source, begin)}")
        self._place = place + 1
        return "".join(target)

    def _begin(self, character: str) -> None:
        if self._is_literal():
            self._refuse(character)
        rest = self._source[self._place : self._place + 3]
        if character == ">" or (rest == "**>" and self._at_line_start()):
            self._begin_quote(rest)
            return
        if rest.startswith("||") and self._ends_quote():
            self._place += 2
            self._close_quote("expandable_blockquote")
            return
        mark = next((one for one in ("```", "__", "||", "![") if rest.startswith(one)), character)
        if mark not in _STYLES or mark == ">":
            self._refuse(character)
        one = _Open(mark, self._place, self._out.length)
        self._place += len(mark)
        if mark == "```":
            one.language = self._language()
        self._open.append(one)

    def _language(self) -> str:
        """Read the language of a block of code and skip the first line break."""
        end = self._place
        while end < len(self._source) and not self._source[end].isspace() and self._source[end] != "`":
            end += 1
        language = ""
        if end > self._place and end < len(self._source) and self._source[end] != "`":
            language = self._source[self._place : end]
            self._place = end
        if self._source.startswith(("\r\n", "\n\r"), self._place):
            self._place += 2
        elif self._source.startswith(("\n", "\r"), self._place):
            self._place += 1
        return language

    def _refuse(self, character: str) -> None:
        raise MarkupError(f"Character '{character}' is reserved and must be escaped with the preceding '\\'")

    def _at_line_start(self) -> bool:
        return self._place == 0 or self._source[self._place - 1] == "\n"

    def _begin_quote(self, rest: str) -> None:
        if not self._at_line_start():
            self._refuse(">")
        if any(one.mark == ">" for one in self._open):
            self._place += 1
            return
        self._open.append(_Open(">", self._place, self._out.length))
        self._place += len(rest) if rest == "**>" else 1

    def _end_line(self) -> None:
        following = self._source[self._place + 1 : self._place + 2]
        if following != ">":
            if self._open[-1].mark != ">":
                last = self._open[-1]
                place = byte_offset(self._source, last.place)
                raise MarkupError(f"Can't find end of {_TITLES[last.mark]} entity at byte offset {place}")
            self._close_quote("blockquote")
        self._write("\n")

    def _ends_quote(self) -> bool:
        after = self._source[self._place + 2 : self._place + 3]
        return bool(self._open) and self._open[-1].mark == ">" and after in ("", "\n")

    def _close_quote(self, kind: EntityType) -> None:
        one = self._open.pop()
        self._out.close(MessageEntity(type=kind, offset=one.offset, length=self._out.length - one.offset))

"""Inline Markdown: emphasis, code, links and addresses, parsed in linear time."""

import re
from bisect import bisect_left
from collections import defaultdict
from html import unescape
from unicodedata import category

from msgspec import Struct

from talaria.cli.markdown.styled_text import StyledRun, Theme
from talaria.cli.terminal_text import format_cell

_FIND_MARK = re.compile(
    r"(?P<escape>\\[!-/:-@\[-`{-~])|(?P<break>\\(?=\n))|(?P<tick>`+)"
    r"|<(?P<auto>[a-zA-Z][a-zA-Z0-9+.-]{1,31}:[^\s<>]*|[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+)>"
    r"|(?P<entity>&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|[a-zA-Z]\w{1,31});)"
    r"|(?P<address>\bhttps?://[^\s<>`\"]+)|(?P<open>!?\[)|(?P<close>\])|(?P<run>\*+|_+|~~+)"
)
_PARENTHESES = r"\((?:[^\s()\\]|\\.)*\)"
_FIND_TARGET = re.compile(
    rf"\(\s*+(?:<(?P<angle>[^<>\n]*)>|(?P<bare>(?:[^\s()<\\]|\\.|{_PARENTHESES})(?:[^\s()\\]|\\.|{_PARENTHESES})*))?"
    r"(?:\s+(?:\"[^\"]{0,500}\"|'[^']{0,500}'))?\s*\)"
)
_FIND_ESCAPE = re.compile(r"\\([!-/:-@\[-`{-~])")
_TICKS = re.compile("`+")
_TRAILING_PUNCTUATION = ".,;:!?'*_~|"


def read_inline(text: str, theme: Theme, base: str = "") -> list[StyledRun]:
    """Return the styled runs of a paragraph; ``base`` is the style of all of it.

    The text must have no control characters. Line breaks are kept.
    """
    if not _FIND_MARK.search(text):
        return [(text, base)]
    return _Reader(text, theme, base).read()


class _Node(Struct):
    """Text with the styles that start after it and end before it."""

    text: str
    style: str = ""
    begins: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()


class _Delimiter(Struct):
    """Run of asterisks, underscores or tildes that may open or close emphasis, or both."""

    node: int
    mark: str
    left: int
    length: int
    opens: bool
    closes: bool


class _Bracket(Struct):
    """Square bracket that may open a link."""

    node: int
    delimiters: int


class _Reader:
    """Parser of one paragraph."""

    def __init__(self, text: str, theme: Theme, base: str) -> None:
        self._text = text
        self._theme = theme
        self._base = base
        self._at = 0
        self._nodes: list[_Node] = []
        self._delimiters: list[_Delimiter] = []
        self._brackets: list[_Bracket] = []
        self._ticks: dict[int, list[int]] | None = None

    def read(self) -> list[StyledRun]:
        text = self._text
        while found := _FIND_MARK.search(text, self._at):
            if found.start() > self._at:
                self._nodes.append(_Node(text[self._at : found.start()]))
            self._at = found.end()
            self._handle_mark(found)
        self._nodes.append(_Node(text[self._at :]))
        self._emphasise(0)
        return self._build_runs()

    def _handle_mark(self, found: re.Match[str]) -> None:
        kind, mark = found.lastgroup, found[0]
        match kind:
            case "escape":
                self._nodes.append(_Node(mark[1]))
            case "break":
                pass
            case "tick":
                self._read_code(found.start(), len(mark))
            case "auto":
                self._nodes.append(_Node(found["auto"], style=self._theme.link))
            case "entity":
                self._nodes.append(_Node(_decode_entity(mark)))
            case "address":
                self._read_address(mark)
            case "open":
                self._brackets.append(_Bracket(len(self._nodes), len(self._delimiters)))
                self._nodes.append(_Node(mark))
            case "close":
                self._read_link()
            case _:
                self._read_run(found.start(), mark)

    def _read_code(self, start: int, length: int) -> None:
        if self._ticks is None:
            self._ticks = defaultdict(list)
            for found in _TICKS.finditer(self._text):
                self._ticks[len(found[0])].append(found.start())
        ends = self._ticks.get(length, [])
        index = bisect_left(ends, start + length)
        if index == len(ends):
            self._nodes.append(_Node("`" * length))
            return
        inner = self._text[start + length : ends[index]].replace("\n", " ")
        if inner.startswith(" ") and inner.endswith(" ") and inner.strip():
            inner = inner[1:-1]
        style = self._theme.inline_code
        self._nodes.append(_Node(inner, style=style) if style else _Node(f"`{inner}`"))
        self._at = ends[index] + length

    def _read_address(self, address: str) -> None:
        url = address.rstrip(_TRAILING_PUNCTUATION)
        for begin, end in ("()", "[]"):
            while url.endswith(end) and url.count(end) > url.count(begin):
                url = url[:-1].rstrip(_TRAILING_PUNCTUATION)
        if self._brackets and "](" in url:
            url = url.partition("](")[0]
        self._at -= len(address) - len(url)
        self._nodes.append(_Node(url, style=self._theme.link))

    def _read_link(self) -> None:
        target = _FIND_TARGET.match(self._text, self._at) if self._brackets else None
        if target is None:
            if self._brackets:
                self._brackets.pop()
            self._nodes.append(_Node("]"))
            return
        opening = self._brackets.pop()
        beginning = self._nodes[opening.node]
        if beginning.text == "[":  # an image may stand in a link, a link may not
            self._brackets.clear()
        self._emphasise(opening.delimiters)
        del self._delimiters[opening.delimiters :]
        shown = "".join(node.text for node in self._nodes[opening.node + 1 :])
        address = format_cell(_FIND_ESCAPE.sub(r"\1", unescape(target["angle"] or target["bare"] or "")))
        beginning.text = ""
        beginning.begins += (self._theme.link,)
        if not shown.strip():
            self._nodes.append(_Node(address))
        self._nodes.append(_Node("", ends=(self._theme.link,)))
        if shown.strip() and address and not _is_same_address(shown, address):
            self._nodes.append(_Node(f" ({address})", style=self._theme.dim))
        self._at = target.end()

    def _read_run(self, start: int, mark: str) -> None:
        before = self._text[start - 1] if start else " "
        after = self._text[self._at] if self._at < len(self._text) else " "
        left = not after.isspace() and (not _is_punctuation(after) or before.isspace() or _is_punctuation(before))
        right = not before.isspace() and (not _is_punctuation(before) or after.isspace() or _is_punctuation(after))
        opens, closes = left, right
        if mark[0] == "_":
            opens = left and (not right or _is_punctuation(before))
            closes = right and (not left or _is_punctuation(after))
        self._delimiters.append(_Delimiter(len(self._nodes), mark[0], len(mark), len(mark), opens, closes))
        self._nodes.append(_Node(mark))

    def _emphasise(self, first: int) -> None:
        """Pair opening and closing delimiters from this one on, by CommonMark's rules."""
        openers: list[_Delimiter] = []
        bottoms: dict[tuple[str, bool, int], int] = {}
        for closer in self._delimiters[first:]:
            key = (closer.mark, closer.opens, closer.length % 3)
            while closer.closes and closer.left:
                floor = bottoms.get(key, 0)
                index = next((i for i in range(len(openers) - 1, floor - 1, -1) if _can_pair(openers[i], closer)), None)
                if index is None:
                    bottoms[key] = len(openers)
                    break
                self._pair(openers[index], closer)
                del openers[index + 1 if openers[index].left else index :]
                for known, height in bottoms.items():
                    bottoms[known] = min(height, len(openers))
            if closer.opens and closer.left:
                openers.append(closer)

    def _pair(self, opener: _Delimiter, closer: _Delimiter) -> None:
        count = 2 if opener.left > 1 and closer.left > 1 else 1
        if opener.mark == "~":
            style, count = self._theme.strike, min(opener.left, closer.left)
        else:
            style = self._theme.bold if count > 1 else self._theme.italic
        begin, end = self._nodes[opener.node], self._nodes[closer.node]
        opener.left -= count
        closer.left -= count
        if style:
            begin.text = begin.text[count:]
            end.text = end.text[count:]
            begin.begins += (style,)
            end.ends += (style,)

    def _build_runs(self) -> list[StyledRun]:
        open_styles: list[str] = []
        style = self._base
        runs: list[StyledRun] = []
        for node in self._nodes:
            if node.ends:
                for ended in node.ends:
                    open_styles.remove(ended)
                style = _join_styles([self._base, *open_styles])
            if node.text:
                runs.append((node.text, _join_styles([style, node.style]) if node.style else style))
            if node.begins:
                open_styles += node.begins
                style = _join_styles([self._base, *open_styles])
        return runs


def _can_pair(opener: _Delimiter, closer: _Delimiter) -> bool:
    if opener.mark != closer.mark:
        return False
    if opener.mark == "~":
        return opener.left == closer.left
    both = opener.closes or closer.opens
    return not (both and (opener.length + closer.length) % 3 == 0 and (opener.length % 3 or closer.length % 3))


def _is_punctuation(character: str) -> bool:
    # East Asian punctuation counts as a letter, so that **「so」**と is bold, as intended.
    return character < "\u2e80" and category(character)[0] in "PS"


def _decode_entity(entity: str) -> str:
    shown = unescape(entity)
    return shown if shown == "\u00a0" else format_cell(shown)


def _is_same_address(shown: str, address: str) -> bool:
    plain = re.sub(r"^(?:https?://|mailto:)", "", address).rstrip("/")
    return shown.strip().rstrip("/") in {address.rstrip("/"), plain}


def _join_styles(styles: list[str]) -> str:
    return ";".join(dict.fromkeys(filter(None, styles)))

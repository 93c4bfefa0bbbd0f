"""Styled text: measured in columns, wrapped into lines, encoded as ANSI sequences, and the themes of a reply."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

from msgspec import Struct

from talaria.cli.terminal_text import display_width

# A text and the numbers of its style; adjacent runs make a line, "\n" within a text ends one.
StyledRun = tuple[str, str]
StyledLine = list[StyledRun]
_LAST_NARROW = "\u2e7f"  # followed by scripts written without spaces, and emoji
_ATTACHED = "\u200d\ufe0e\ufe0f\U0001f3fb-\U0001f3ff"
_CLOSING = (
    ",.;:!?)\u2026\u3001\u3002\u300d\u300f\u3011\u30fc\uff01\uff09\uff0c\uff1a\uff1b\uff1f"  # never first in a line
)
# Between wide characters a line may end without a space; what belongs to one of them stays with it.
_WIDE = rf"[^\x00-{_LAST_NARROW}]"
_JOINED = rf"[{_ATTACHED}]|(?<=\u200d)(?:{_WIDE}|[\u2600-\u27bf])"
_WORD = rf"[\x00-\t\x0b-\x1f!-{_LAST_NARROW}]+"
_FIND_PIECE = re.compile(rf"\n| +|{_WIDE}(?:{_JOINED})*[{_CLOSING}]*|{_WORD}")
_FIND_ASCII_PIECE = re.compile(r"\n| +|[^ \n]+")


class Theme(Struct, frozen=True, kw_only=True):
    """Styles of a reply.

    Each style is the text between ``ESC [`` and ``m``. If `inline_code` or `strike` is empty, the source markup stays.
    ``pygments`` names the code style; its backgrounds are ignored.
    """

    name: str
    pygments: str
    heading1: str
    heading2: str
    heading: str
    inline_code: str
    code: str
    quote: str
    link: str
    tool: str
    error: str
    dim: str
    added: str
    removed: str
    bold: str = "1"
    italic: str = "3"
    strike: str = "9"


def measure_width(text: str) -> int:
    """Return the columns of a text in a terminal; joined emoji count as one."""
    return len(text) if text.isascii() else _measure(text)


def wrap(runs: Iterable[StyledRun], width: int, *, cut_words: bool = False) -> list[StyledLine]:
    """Return the runs wrapped to lines of ``width`` columns.

    A wider word gets its own line and is wrapped by the terminal, so that an address can be copied; with ``cut_words``
    it is cut.
    """
    wrapper = _LineWrapper(width, cut_words=cut_words)
    for text, style in runs:
        find = _FIND_ASCII_PIECE if text.isascii() else _FIND_PIECE
        for piece in find.findall(text):
            wrapper.add(piece, style)
    return wrapper.finish()


def line_width(line: Sequence[StyledRun]) -> int:
    """Return the columns of a line."""
    return sum(measure_width(text) for text, _ in line)


def strip_line(line: StyledLine) -> StyledLine:
    """Return a line without trailing spaces."""
    while line and not line[-1][0].strip(" "):
        line = line[:-1]
    return [*line[:-1], (line[-1][0].rstrip(" "), line[-1][1])] if line else line


def to_ansi(line: Iterable[StyledRun]) -> str:
    """Return a line with ANSI styles, all closed at its end."""
    out: list[str] = []
    pending, current = "", ""
    for text, style in line:
        if style == current:
            pending += text
            continue
        out.append(_style_text(pending, current))
        pending, current = text, style
    out.append(_style_text(pending, current))
    return "".join(out)


@lru_cache(maxsize=4096)
def _measure(text: str) -> int:
    total = before = 0
    joined = False
    for character in text:
        if before == 2 and (joined or "\U0001f3fb" <= character <= "\U0001f3ff"):
            joined = False
        elif character == "\u200d":
            joined = True
        elif character == "\ufe0f" and before == 1:
            total, before = total + 1, 2
        elif not "\u1160" <= character <= "\u11ff":
            size = display_width(character)
            total += size
            before = size or before
            joined = False
    return total


def _style_text(text: str, style: str) -> str:
    return f"\x1b[{style}m{text}\x1b[0m" if style and text else text


class _LineWrapper:
    """Wrapper that adds pieces to lines; pieces without a space between them stay together."""

    def __init__(self, width: int, *, cut_words: bool) -> None:
        self._width = max(1, width)
        self._cut_words = cut_words
        self._lines: list[StyledLine] = []
        self._line: StyledLine = []
        self._used = 0
        self._word: StyledLine = []
        self._word_width = 0
        self._space: StyledRun | None = None

    def add(self, piece: str, style: str) -> None:
        first = piece[0]
        if first == " ":
            self._add_word()
            self._space = (piece, style)
        elif first == "\n":
            self._break()
        elif first <= _LAST_NARROW:
            self._word.append((piece, style))
            self._word_width += measure_width(piece)
        else:
            self._add_word()
            self._word.append((piece, style))
            self._word_width = measure_width(piece)
            self._add_word()

    def finish(self) -> list[StyledLine]:
        self._break()
        return self._lines

    def _break(self) -> None:
        self._add_word()
        self._space = None
        self._lines.append(self._line)
        self._line, self._used = [], 0

    def _add_word(self) -> None:
        if not self._word:
            return
        gap = len(self._space[0]) if self._space and self._line else 0
        if self._line and self._used + gap + self._word_width > self._width:
            self._lines.append(self._line)
            self._line, self._used = [], 0
        elif gap and self._space:
            self._line.append(self._space)
            self._used += gap
        self._space = None
        if self._cut_words and self._word_width > self._width:
            self._add_cut_word()
        else:
            self._line += self._word
            self._used += self._word_width
        self._word, self._word_width = [], 0

    def _add_cut_word(self) -> None:
        for text, style in self._word:
            for character in text:
                size = measure_width(character)
                if self._line and self._used + size > self._width:
                    self._lines.append(self._line)
                    self._line, self._used = [], 0
                self._line.append((character, style))
                self._used += size


_DARK = Theme(
    name="dark",
    pygments="github-dark",
    heading1="1;4;38;5;117",
    heading2="1;38;5;117",
    heading="1;38;5;152",
    inline_code="38;5;180",
    code="38;5;252",
    quote="38;5;249",
    link="4;38;5;75",
    tool="38;5;108",
    error="38;5;210",
    dim="38;5;245",
    added="38;5;114",
    removed="38;5;210",
)
_LIGHT = Theme(
    name="light",
    pygments="xcode",
    heading1="1;4;38;5;24",
    heading2="1;38;5;24",
    heading="1;38;5;23",
    inline_code="38;5;89",
    code="38;5;236",
    quote="38;5;239",
    link="4;38;5;25",
    tool="38;5;22",
    error="38;5;124",
    dim="38;5;242",
    added="38;5;22",
    removed="38;5;124",
)
_MONO = Theme(
    name="mono",
    pygments="bw",
    heading1="1;4",
    heading2="1",
    heading="1;3",
    inline_code="",
    code="",
    quote="3",
    link="4",
    tool="3",
    error="1",
    dim="",
    added="1",
    removed="3",
    strike="",
)
THEMES: Mapping[str, Theme] = MappingProxyType({theme.name: theme for theme in (_DARK, _LIGHT, _MONO)})

"""Markdown into runs of text with the marks that Telegram knows; what it does not know is shown in another way."""

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct

from talaria.platforms.telegram.entities import Run, Style
from talaria.platforms.telegram.tables import Row, Table

_READER = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_MARKS = {"strong_open": Style("bold"), "em_open": Style("italic"), "s_open": Style("strikethrough")}
_EXCLUDES_OTHERS = frozenset({"code", "pre"})
_SCHEMES = frozenset({"http", "https", "tg", "ton"})
_BOLD = Style("bold")
_RULE = "———"
_TASKS = {"[ ] ": "☐ ", "[x] ": "☑ ", "[X] ": "☑ "}
_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")
_LEAVES = frozenset({"paragraph_open", "heading_open", "fence", "code_block", "hr", "table_open"})


def read_markdown(source: str, *, aligned_tables: bool = True) -> list[Run]:
    """Return the runs of a text; tables are drawn with ``aligned_tables`` where they are narrow, else told in rows."""
    return _Writer(aligned_tables=aligned_tables).write(_READER.parse(source))


class _List(Struct):
    """A list that is being written; ``marker`` waits for the first text of its item."""

    marker: str = ""


class _Link(Struct):
    """A link that is being written, from this run on; ``style`` is missing where Telegram knows no such address."""

    address: str
    first: int
    style: Style | None


class _Writer:
    """A text in the making."""

    def __init__(self, *, aligned_tables: bool) -> None:
        self._runs: list[Run] = []
        self._aligned_tables = aligned_tables
        self._styles: list[Style] = []
        self._quotes: list[Style] = []
        self._lists: list[_List] = []
        self._links: list[_Link] = []
        self._table: Table | None = None
        self._serial = 0
        self._gap = 0
        self._last_line: int | None = None

    def write(self, tokens: Sequence[Token]) -> list[Run]:
        """Write a document and return all of it."""
        for token in tokens:
            if token.type in _LEAVES and token.map:
                self._begin_leaf(*token.map)
            self._take(token)
        return self._runs

    def write_inline(self, tokens: Sequence[Token]) -> list[Run]:
        """Write what stands within a paragraph and return all of it."""
        for token in tokens:
            self._take_child(token)
        return self._runs

    def _begin_leaf(self, first: int, behind: int) -> None:
        """Keep a free line in front of a block where its author left one."""
        if self._last_line is not None:
            self._gap = 2 if first > self._last_line else 1
        self._last_line = behind

    def _take(self, token: Token) -> None:  # noqa: C901 - one case for each kind of block
        match token.type:
            case "inline" if self._table is not None:
                cell = _Writer(aligned_tables=False).write_inline(token.children or ())
                self._table.rows[-1].cells.append(cell)
            case "inline":
                self.write_inline(token.children or ())
            case "heading_open":
                self._styles.append(_BOLD)
            case "heading_close":
                self._styles.pop()
            case "fence" | "code_block":
                self._add_code(token)
            case "hr":
                self._add(_RULE)
            case "blockquote_open":
                self._serial += 1
                self._quotes.append(Style("blockquote", serial=self._serial))
            case "blockquote_close":
                self._quotes.pop()
            case "bullet_list_open" | "ordered_list_open":
                self._lists.append(_List())
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
            case "list_item_open":
                self._lists[-1].marker = f"{token.info}{token.markup} " if token.info else "• "
                self._gap = max(self._gap, 1)
            case _:
                self._take_table(token)

    def _take_table(self, token: Token) -> None:
        if token.type == "table_open":
            self._table = Table()
        elif self._table is not None and token.type == "tr_open":
            self._table.rows.append(Row())
        elif self._table is not None and token.type == "table_close":
            table, self._table = self._table, None
            drawn = table.drawn() if self._aligned_tables else None
            if drawn is not None:
                self._add_block(drawn, "")
                return
            for number, row in enumerate(table.told()):
                self._gap = self._gap if number == 0 else 1
                for run in row:
                    self._add(run.text, *run.styles)

    def _add_code(self, token: Token) -> None:
        language = _LANGUAGE.match(token.info.strip()) if token.info else None
        self._add_block(token.content.rstrip("\n"), language[0] if language else "")

    def _add_block(self, text: str, language: str) -> None:
        if not text.strip():
            return
        self._serial += 1
        if self._lists and self._lists[-1].marker:
            self._add("")
            self._gap = 1
        self._flush_gap(indented=False)
        self._append(text, frozenset({*self._quotes[:1], Style("pre", language, self._serial)}))

    def _add(self, text: str, *styles: Style) -> None:
        """Write some text within a paragraph, with what has to stand in front of it."""
        self._flush_gap()
        depth = len(self._lists)
        for level, one in enumerate(self._lists):
            if one.marker:
                task = _TASKS.get(text[:4], "") if level == depth - 1 else ""
                text = text[4:] if task else text
                self._append("  " * level + (task or one.marker), self._marks(()))
                one.marker = ""
        self._append(text.replace("\n", "\n" + "  " * depth), self._marks(styles))

    def _marks(self, styles: Sequence[Style]) -> frozenset[Style]:
        """Return the marks for some text here: one quotation, one link, and nothing around code."""
        link = next((one.style for one in self._links if one.style), None)
        inner = [link] if link else list(styles)
        if not any(one.kind in _EXCLUDES_OTHERS for one in inner):
            inner += self._styles
        return frozenset({*self._quotes[:1], *inner})

    def _flush_gap(self, *, indented: bool = True) -> None:
        if self._gap and self._runs:
            shared = self._runs[-1].styles & frozenset(self._quotes[:1])
            indent = indented and not any(one.marker for one in self._lists)
            self._append("\n" * self._gap + "  " * len(self._lists) * indent, shared)
        self._gap = 0

    def _append(self, text: str, styles: frozenset[Style]) -> None:
        if text:
            self._runs.append(Run(text, styles))

    def _take_child(self, token: Token) -> None:
        match token.type:
            case "text" | "html_inline":
                if token.content:
                    self._add(token.content)
            case "code_inline":
                self._add(token.content, Style("code"))
            case "softbreak" | "hardbreak":
                self._add("\n")
            case "strong_open" | "em_open" | "s_open":
                self._styles.append(_MARKS[token.type])
            case "strong_close" | "em_close" | "s_close":
                self._styles.pop()
            case "link_open":
                self._begin_link(str(token.attrs.get("href", "")), automatic=token.markup == "autolink")
            case "link_close":
                self._end_link()
            case "image":
                self._begin_link(str(token.attrs.get("src", "")), automatic=False)
                self._add(token.content)
                self._end_link()
            case _:
                self._add(token.content)

    def _begin_link(self, address: str, *, automatic: bool) -> None:
        known = not automatic and _is_known_to_telegram(address)
        self._links.append(_Link(address, len(self._runs), Style("text_link", address) if known else None))

    def _end_link(self) -> None:
        link = self._links[-1]
        shown = "".join(run.text for run in self._runs[link.first :]).strip()
        if not shown:
            self._add(link.address)
        self._links.pop()
        if shown and link.style is None and link.address and not _same(shown, link.address):
            self._add(f" ({link.address})")


def _is_known_to_telegram(address: str) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme in _SCHEMES and bool(parts.netloc)


def _same(shown: str, address: str) -> bool:
    return shown in {address, address.removeprefix("mailto:")}

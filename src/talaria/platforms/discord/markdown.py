"""Adapt Markdown to Discord: tables, small headings and images."""

import re
from unicodedata import combining, east_asian_width

from markdown_it import MarkdownIt
from markdown_it.token import Token

MAX_TABLE_WIDTH = 60
_PARSER = MarkdownIt("commonmark").enable("table")
_PICTURE = re.compile(r"!\[([^\]\n]*)\]\((<[^>\n]*>|[^\s)]+)[^)\n]*\)")
_MARKS = re.compile(r"(\*\*|__|~~|`)")
_HEADING_PREFIXES = {"h1": "# ", "h2": "## ", "h3": "### "}


def reshape(source: str) -> str:
    """Return a text with tables in monospace, and other unsupported markup made readable."""
    lines = source.split("\n")
    tokens = _PARSER.parse(source)
    for position in range(len(tokens) - 1, -1, -1):
        token = tokens[position]
        if token.map is None:
            continue
        begin, end = token.map
        if token.type == "table_open":
            lines[begin:end] = [*_table(tokens[position:]), *_trailing_blank(lines[begin:end])]
        elif token.type == "heading_open":
            _heading(lines, token, tokens[position + 1].content)
        elif token.type == "inline" and any(child.type == "image" for child in token.children or ()):
            lines[begin:end] = [_PICTURE.sub(_picture_link, line) for line in lines[begin:end]]
    return "\n".join(lines)


def _heading(lines: list[str], token: Token, title: str) -> None:
    """Return a heading in one of Discord's three sizes, or bold text."""
    assert token.map is not None
    begin, end = token.map
    underlined = token.markup in ("=", "-")
    if token.level or (token.tag in _HEADING_PREFIXES and not underlined):
        return
    lines[begin:end] = [f"{_HEADING_PREFIXES[token.tag]}{title}" if underlined else f"**{_MARKS.sub('', title)}**"]


def _picture_link(found: re.Match[str]) -> str:
    return f"[{found[1]}]({found[2]})" if found[1] else found[2]


def _trailing_blank(lines: list[str]) -> list[str]:
    """Return the empty lines at the end, which belong to what follows."""
    return [""] if lines and not lines[-1].strip() else []


def _table(tokens: list[Token]) -> list[str]:
    rows = _rows(tokens)
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    if sum(widths) + 3 * (len(widths) - 1) > MAX_TABLE_WIDTH:
        return _rows_as_list(rows)
    table_lines = [
        " │ ".join(text + " " * (width - _width(text)) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    table_lines.insert(1, "─┼─".join("─" * width for width in widths))
    return ["```", *table_lines, "```"]


def _rows(tokens: list[Token]) -> list[list[str]]:
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "table_close":
            break
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append(_MARKS.sub("", token.content).replace("```", "'''"))
    return rows


def _rows_as_list(rows: list[list[str]]) -> list[str]:
    """Return a line per row: the first cell, then the others after their column names."""
    head, *others = rows
    if not others:
        return [f"**{', '.join(filter(None, head))}**"]
    return [
        f"- **{row[0]}**: " + "; ".join(f"{name}: {cell}" for name, cell in zip(head[1:], row[1:], strict=True) if cell)
        for row in others
    ]


def _width(text: str) -> int:
    return sum(0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text)

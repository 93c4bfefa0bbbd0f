"""Markdown as Discord shows it: without tables, small headings and pictures."""

import re
from unicodedata import combining, east_asian_width

from markdown_it import MarkdownIt
from markdown_it.token import Token

WIDEST = 60
_PARSER = MarkdownIt("commonmark").enable("table")
_PICTURE = re.compile(r"!\[([^\]\n]*)\]\((<[^>\n]*>|[^\s)]+)[^)\n]*\)")
_MARKS = re.compile(r"(\*\*|__|~~|`)")
_LARGE = {"h1": "# ", "h2": "## ", "h3": "### "}


def reshape(source: str) -> str:
    """Return a text with its tables drawn in letters of one width, and what else would show as signs made readable."""
    lines = source.split("\n")
    tokens = _PARSER.parse(source)
    for place in range(len(tokens) - 1, -1, -1):
        token = tokens[place]
        if token.map is None:
            continue
        begin, end = token.map
        if token.type == "table_open":
            lines[begin:end] = [*_table(tokens[place:]), *_blanks(lines[begin:end])]
        elif token.type == "heading_open":
            _heading(lines, token, tokens[place + 1].content)
        elif token.type == "inline" and any(child.type == "image" for child in token.children or ()):
            lines[begin:end] = [_PICTURE.sub(_link, line) for line in lines[begin:end]]
    return "\n".join(lines)


def _heading(lines: list[str], token: Token, words: str) -> None:
    """Make a heading of one of the three sizes that there are, or bold words."""
    assert token.map is not None
    begin, end = token.map
    underlined = token.markup in ("=", "-")
    if token.level or (token.tag in _LARGE and not underlined):
        return
    lines[begin:end] = [f"{_LARGE[token.tag]}{words}" if underlined else f"**{_MARKS.sub('', words)}**"]


def _link(found: re.Match[str]) -> str:
    return f"[{found[1]}]({found[2]})" if found[1] else found[2]


def _blanks(lines: list[str]) -> list[str]:
    """Return the empty lines at the end, which belong to what follows."""
    return [""] if lines and not lines[-1].strip() else []


def _table(tokens: list[Token]) -> list[str]:
    rows = _rows(tokens)
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    if sum(widths) + 3 * (len(widths) - 1) > WIDEST:
        return _told(rows)
    drawn = [
        " │ ".join(text + " " * (width - _width(text)) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    drawn.insert(1, "─┼─".join("─" * width for width in widths))
    return ["```", *drawn, "```"]


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


def _told(rows: list[list[str]]) -> list[str]:
    """Return a line for each row: the first cell, then the others behind the names of their columns."""
    head, *others = rows
    if not others:
        return [f"**{', '.join(filter(None, head))}**"]
    return [
        f"- **{row[0]}**: " + "; ".join(f"{name}: {cell}" for name, cell in zip(head[1:], row[1:], strict=True) if cell)
        for row in others
    ]


def _width(text: str) -> int:
    return sum(0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text)

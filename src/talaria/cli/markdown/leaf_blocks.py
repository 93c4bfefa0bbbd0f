"""Leaf blocks: detection of their first line, and their state while open."""

import re

from msgspec import Struct, field
from msgspec.structs import replace

from talaria.cli.markdown.code import Highlighter
from talaria.cli.markdown.containers import indent_of
from talaria.cli.markdown.table import Table

_FIND_FENCE = re.compile(r"(?P<marks>`{3,}(?=[^`]*$)|~{3,})(?P<info>.*)")
_FIND_HEADING = re.compile(r"(#{1,6})(?: +|$)")
_IS_RULE = re.compile(r"(?:\*[ ]*){3,}|(?:-[ ]*){3,}|(?:_[ ]*){3,}").fullmatch
_IS_UNDERLINE = re.compile(r"(?:=+|-+) *").fullmatch
_BEGINS_HTML = re.compile(
    r"<(?:!--|[?]|![A-Z]|/?(?:address|article|aside|blockquote|body|center|dd|details|div|dl|dt|fieldset|figure|footer"
    r"|form|h[1-6]|head|header|html|iframe|li|link|main|nav|ol|p|pre|script|section|style|summary|svg|table|tbody|td"
    r"|textarea|tfoot|th|thead|title|tr|ul)(?=[\s/>]|$))",
    re.IGNORECASE,
).match


class Paragraph(Struct):
    """Lines of text; ``continues`` if earlier lines are already written."""

    lines: list[str] = field(default_factory=list)
    size: int = 0
    continues: bool = False


class Fence(Struct):
    """Fenced code; ``indent`` is that of the opening fence, ``fresh`` before any output."""

    marks: str
    indent: int
    highlighter: Highlighter
    fresh: bool


class IndentedCode(Struct):
    """Code indented by four columns, and following empty lines that may belong to it."""

    blanks: int = 0


class Html(Struct):
    """Lines shown unchanged, up to an empty one."""


class TableRows(Struct):
    """Table from its second line on; ``fresh`` before any output."""

    table: Table
    fresh: bool = True


class Heading(Struct, frozen=True):
    """Heading of level 1 to 6."""

    level: int
    text: str


Leaf = Paragraph | Fence | IndentedCode | Html | TableRows


def copy_leaf(leaf: Leaf) -> Leaf:
    """Return an independent copy of a block."""
    match leaf:
        case Paragraph():
            return replace(leaf, lines=list(leaf.lines))
        case Fence():
            return replace(leaf, highlighter=leaf.highlighter.copy())
        case TableRows():
            return replace(leaf, table=leaf.table.copy())
        case _:
            return replace(leaf)


def read_fence(rest: str) -> tuple[str, str] | None:
    """Return the opening fence and its language."""
    found = _FIND_FENCE.match(rest.strip())
    if found is None:
        return None
    info_parts = found["info"].strip().strip("{}").split(maxsplit=1)
    return found["marks"], info_parts[0].lstrip(".") if info_parts else ""


def closes_fence(rest: str, marks: str) -> bool:
    """Return whether this line closes the fence."""
    text = rest.strip()
    return len(text) >= len(marks) and indent_of(rest) < 4 and text == marks[0] * len(text)


def read_heading(rest: str) -> Heading | None:
    """Return the heading of a line that starts with number signs."""
    text = rest.strip()
    found = _FIND_HEADING.match(text)
    if found is None:
        return None
    title = text[found.end() :]
    bare = title.rstrip("#")
    return Heading(len(found[1]), (bare if not bare or bare.endswith(" ") else title).strip())


def is_rule(rest: str) -> bool:
    """Return whether a line is a horizontal rule."""
    text = rest.strip()
    return text[:1] in {"*", "-", "_"} and _IS_RULE(text) is not None


def underline_level(rest: str) -> int:
    """Return the heading level that a line gives to the paragraph above it, or 0."""
    text = rest.strip()
    return 0 if not _IS_UNDERLINE(text) else 1 if text[0] == "=" else 2


def begins_html(rest: str) -> bool:
    """Return whether a line starts an HTML block."""
    return _BEGINS_HTML(rest.lstrip(" ")) is not None


def begins_leaf(rest: str) -> bool:
    """Return whether a line starts a block that ends a paragraph or table."""
    if indent_of(rest) > 3:
        return False
    return bool(read_fence(rest) or read_heading(rest)) or is_rule(rest) or begins_html(rest)

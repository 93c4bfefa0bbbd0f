"""Container blocks: quotes and list items, and the prefix they add to each line."""

import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from talaria.cli.markdown.styled_text import StyledLine
from talaria.cli.markdown.themes import Theme

MAX_DEPTH = 16
_BAR = "│ "
_FIND_MARKER = re.compile(r"(?:(?P<bullet>[-+*])|(?P<number>\d{1,9})(?P<end>[.)]))(?P<gap> +|$)")
_FIND_TASK = re.compile(r"\[([ xX])\] +(?=\S)")


class Container(Struct):
    """Quote or list item that later lines may continue; ``key`` identifies it."""

    key: int


class Quote(Container):
    """Block quote, marked with ``>``."""


class Item(Container, kw_only=True):
    """List item.

    ``origin`` is the column of its marker and ``indent`` that of its text; ``fresh`` until its marker is written.
    """

    kind: str
    number: int
    origin: int
    indent: int
    marker: str
    fresh: bool = True


def indent_of(text: str) -> int:
    """Return the number of leading spaces."""
    return len(text) - len(text.lstrip(" "))


def enter(container: Container, rest: str) -> str | None:
    """Return the part of a line inside this container; ``None`` if it does not belong there."""
    indent = indent_of(rest)
    if isinstance(container, Item):
        if indent == len(rest):
            return ""
        # Below "1." many people indent by two spaces instead of three: that is meant as a nested list.
        if container.origin + 2 <= indent < container.indent and _FIND_MARKER.match(rest, indent):
            container.indent = indent
        return rest[container.indent :] if indent >= container.indent else None
    return _strip_quote_marker(rest, indent)


def open_quote(rest: str, key: int) -> tuple[Container, str] | None:
    """Return the quote that starts here, and its part of this line."""
    inner = _strip_quote_marker(rest, indent_of(rest))
    return None if inner is None else (Quote(key), inner)


def open_item(rest: str, key: int, before: Container | None, *, interrupts: bool) -> tuple[Container, str] | None:
    """Return the item that starts here, and its part of this line.

    ``before`` has just ended at the same position: an item of the same list continues its numbering. An item that
    ``interrupts`` a paragraph must have a text and the number 1.
    """
    origin = indent_of(rest)
    found = _FIND_MARKER.match(rest, origin)
    if found is None:
        return None
    inner = rest[found.end() :]
    if interrupts and (not inner or found["number"] not in {None, "1"}):
        return None
    kind = found["bullet"] or found["end"]
    number = int(found["number"] or 0)
    if isinstance(before, Item) and before.kind == kind:
        number = max(number, before.number + 1)
    gap = len(found["gap"])
    if gap > 4 or not inner:
        inner, gap = " " * (gap - 1) + inner if inner else "", 1
    marker = f"{number}{kind} " if found["number"] else "• "
    indent = found.end("gap") - len(found["gap"]) + gap
    if task := _FIND_TASK.match(inner):
        inner = inner[task.end() :]
        marker = f"{marker if found['number'] else ''}[{task[1].lower()}] "
    return Item(key, kind=kind, number=number, origin=origin, indent=indent, marker=marker), inner


def prefix(containers: Sequence[Container], theme: Theme) -> StyledLine:
    """Return the prefix of the next line in these containers."""
    return [_render_part(one, theme) for one in containers]


def blank_prefix(containers: Sequence[Container], theme: Theme) -> StyledLine:
    """Return an empty line in these containers, without trailing spaces."""
    last = max((i + 1 for i, one in enumerate(containers) if isinstance(one, Quote)), default=0)
    line = [_render_part(one, theme) for one in containers[:last]]
    return [*line[:-1], (_BAR.rstrip(), theme.dim)] if line else []


def copy_containers(containers: Sequence[Container]) -> list[Container]:
    """Return independent copies of the containers."""
    return [replace(one) for one in containers]


def _render_part(container: Container, theme: Theme) -> tuple[str, str]:
    if not isinstance(container, Item):
        return _BAR, theme.dim
    return container.marker if container.fresh else " " * len(container.marker), ""


def _strip_quote_marker(rest: str, indent: int) -> str | None:
    if indent > 3 or not rest.startswith(">", indent):
        return None
    inner = rest[indent + 1 :]
    return inner.removeprefix(" ")

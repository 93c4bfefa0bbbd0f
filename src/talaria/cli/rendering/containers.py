"""What blocks stand in: quotes and list items, and what they put in front of each line."""

import re
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from talaria.cli.rendering.runs import Line
from talaria.cli.rendering.themes import Theme

MOST = 16
_BAR = "│ "
_FIND_MARKER = re.compile(r"(?:(?P<bullet>[-+*])|(?P<number>\d{1,9})(?P<end>[.)]))(?P<gap> +|$)")
_FIND_TASK = re.compile(r"\[([ xX])\] +(?=\S)")


class Container(Struct):
    """A quote or an item that later lines may still belong to; ``key`` tells it from all others."""

    key: int


class Quote(Container):
    """What stands behind ``>``."""


class Item(Container, kw_only=True):
    """An item of a list.

    ``origin`` is where its marker stands and ``indent`` where its text does; ``fresh`` until its marker is written.
    """

    kind: str
    number: int
    origin: int
    indent: int
    marker: str
    fresh: bool = True


def indent_of(text: str) -> int:
    """Return how many spaces the text begins with."""
    return len(text) - len(text.lstrip(" "))


def enter(container: Container, rest: str) -> str | None:
    """Return what a line has for the inside of this container; nothing if it does not belong there."""
    indent = indent_of(rest)
    if isinstance(container, Item):
        if indent == len(rest):
            return ""
        # Below "1." many write two spaces where three are due: that is meant as a list within.
        if container.origin + 2 <= indent < container.indent and _FIND_MARKER.match(rest, indent):
            container.indent = indent
        return rest[container.indent :] if indent >= container.indent else None
    return _behind_bar(rest, indent)


def open_quote(rest: str, key: int) -> tuple[Container, str] | None:
    """Return the quote that begins here, and what it holds of this line."""
    inner = _behind_bar(rest, indent_of(rest))
    return None if inner is None else (Quote(key), inner)


def open_item(rest: str, key: int, before: Container | None, *, interrupts: bool) -> tuple[Container, str] | None:
    """Return the item that begins here, and what it holds of this line.

    ``before`` is what has just ended at the same place: an item of the same list is counted on from. An item that
    ``interrupts`` a paragraph has to have a text, and the first number.
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


def prefix(containers: Sequence[Container], theme: Theme) -> Line:
    """Return what stands in front of the next line in these containers."""
    return [_part(one, theme) for one in containers]


def blank_prefix(containers: Sequence[Container], theme: Theme) -> Line:
    """Return an empty line in these containers, without spaces at its end."""
    last = max((i + 1 for i, one in enumerate(containers) if isinstance(one, Quote)), default=0)
    line = [_part(one, theme) for one in containers[:last]]
    return [*line[:-1], (_BAR.rstrip(), theme.dim)] if line else []


def copied(containers: Sequence[Container]) -> list[Container]:
    """Return the same containers, to go on from here by themselves."""
    return [replace(one) for one in containers]


def _part(container: Container, theme: Theme) -> tuple[str, str]:
    if not isinstance(container, Item):
        return _BAR, theme.dim
    return container.marker if container.fresh else " " * len(container.marker), ""


def _behind_bar(rest: str, indent: int) -> str | None:
    if indent > 3 or not rest.startswith(">", indent):
        return None
    inner = rest[indent + 1 :]
    return inner.removeprefix(" ")

"""Short texts around a reply, wrapped at words: notices, errors, what a person wrote, what needs approval."""

from collections.abc import Iterator

from talaria.cli.cells import harmless
from talaria.cli.rendering.document import render
from talaria.cli.rendering.runs import ansi, measure
from talaria.cli.rendering.themes import Theme

_TAB = 4
_NARROWEST = 4
_RESET = "\x1b[0m"


def wrap_text(text: str, style: str, width: int, *, first: str = "", rest: str = "") -> str:
    """Return plain text as whole lines in one style: every character as it is, control characters escaped.

    The first line begins with ``first``, all others with ``rest``.
    """
    room = max(_NARROWEST, width - 1 - max(len(first), len(rest)))
    lines = [part for line in harmless(text).split("\n") for part in _fold(line.expandtabs(_TAB), room)]
    marked = [f"{rest if place else first}{line}".rstrip() for place, line in enumerate(lines)]
    return "".join(f"{ansi([(line, style)])}\n" for line in marked)


def render_notice(text: str, theme: Theme, style: str, width: int) -> str:
    """Return Markdown as whole lines whose plain text has this style."""
    rendered = render(text, theme, width)
    if not style:
        return rendered
    begin = f"\x1b[{style}m"
    lines = rendered.rstrip("\n").split("\n")
    return "".join(f"{begin}{line.replace(_RESET, _RESET + begin)}{_RESET}\n" if line else "\n" for line in lines)


def _fold(line: str, room: int) -> Iterator[str]:
    """Cut a line into parts of at most ``room`` columns, behind a space where there is one."""
    while (end := _fitting(line, room)) < len(line):
        at = line.rfind(" ", 0, end + 1) + 1 or end
        yield line[:at]
        line = line[at:]
    yield line


def _fitting(line: str, room: int) -> int:
    """Return how many characters fit in ``room`` columns, one at least."""
    used = 0
    for place, character in enumerate(line):
        used += measure(character)
        if used > room:
            return max(1, place)
    return len(line)

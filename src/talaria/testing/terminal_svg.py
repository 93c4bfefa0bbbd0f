"""Draw a screen as an SVG whose text stays text."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby

from msgspec import Struct, structs

from talaria.testing.screen import CursorPosition
from talaria.testing.terminal import Cell

_FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', 'Liberation Mono', monospace"
_SIZE, _WIDTH, _HEIGHT, _BASELINE = 14, 8.4, 18, 13.5
_BAR, _PADDING, _CORNER = 36, 16, 10
_DOTS = ("#f2685f", "#f5bd4f", "#5fc454")
_FRAME, _BACKGROUND, _TEXT, _TITLE, _CURSOR = "#2b3140", "#12151c", "#d5d9e3", "#8a93a6", "#d5d9e3"
_COLOURS = {
    "black": "#3a4150",
    "red": "#ef6b73",
    "green": "#8fcf7c",
    "yellow": "#e8c070",
    "blue": "#6cb0f5",
    "magenta": "#c98be8",
    "cyan": "#5cc7cf",
    "white": "#c5cbd8",
    "brightblack": "#727c90",
    "brightred": "#ff8f95",
    "brightgreen": "#ade39c",
    "brightyellow": "#f7d995",
    "brightblue": "#96c8ff",
    "brightmagenta": "#dfb0f7",
    "brightcyan": "#8be3e9",
    "brightwhite": "#ffffff",
}


class _Run(Struct, frozen=True):
    """Adjacent cells that look alike: start, number of columns, text."""

    column: int
    width: int
    text: str
    look: Cell


def draw(rows: Sequence[Sequence[Cell]], *, title: str, cursor: CursorPosition | None = None) -> str:
    """Return a picture of these rows in a window with a title, with the cursor if visible."""
    columns = max((sum(cell.width for cell in row) for row in rows), default=0)
    width, height = columns * _WIDTH + 2 * _PADDING, _BAR + len(rows) * _HEIGHT + _PADDING
    size = f'width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="{_FONT}" font-size="{_SIZE}">',
            f"<title>{escape(title)}</title>",
            *_draw_window(width, height, title),
            *(piece for number, row in enumerate(rows) for piece in _draw_row(number, row)),
            *(_draw_cursor(cursor) if cursor and cursor.visible else ()),
            "</svg>\n",
        ]
    )


def _draw_window(width: float, height: float, title: str) -> Iterator[str]:
    yield (
        f'<rect x="0.5" y="0.5" width="{width - 1:g}" height="{height - 1:g}" rx="{_CORNER}" '
        f'fill="{_BACKGROUND}" stroke="{_FRAME}"/>'
    )
    for position, colour in enumerate(_DOTS):
        yield f'<circle cx="{20 + 20 * position}" cy="{_BAR / 2:g}" r="6" fill="{colour}"/>'
    yield (
        f'<text x="{width / 2:g}" y="{_BAR / 2 + 4.5:g}" text-anchor="middle" font-size="13" '
        f'fill="{_TITLE}">{escape(title)}</text>'
    )


def _draw_row(number: int, row: Iterable[Cell]) -> Iterator[str]:
    top = _BAR + number * _HEIGHT
    runs = list(_join_runs(row))
    for run in runs:
        background = _choose_background(run.look)
        if background:
            yield (
                f'<rect x="{_compute_x(run.column):g}" y="{top}" width="{run.width * _WIDTH:g}" height="{_HEIGHT}" '
                f'fill="{background}"/>'
            )
    for run in runs:
        if run.text.strip() or run.look.underlined or run.look.struck:
            yield _draw_text(run, top)


def _join_runs(row: Iterable[Cell]) -> Iterator[_Run]:
    """Join what looks alike. Wide characters stand alone: fonts disagree about them, and nothing may shift."""
    column = 0
    for (look, _), group in groupby(row, key=_get_look):
        cells = list(group)
        pieces = [cells] if look.width == 1 else [[cell] for cell in cells]
        for piece in pieces:
            width = sum(cell.width for cell in piece)
            yield _trim_run(_Run(column, width, "".join(cell.text for cell in piece), look))
            column += width


def _get_look(cell: Cell) -> tuple[Cell, bool]:
    return structs.replace(cell, text=""), len(cell.text) > 1


def _trim_run(run: _Run) -> _Run:
    """Return a run without blanks at its ends, where nobody would see them."""
    if _choose_background(run.look) or run.look.underlined or run.look.struck or not run.text.strip():
        return run
    begin = len(run.text) - len(run.text.lstrip())
    text = run.text.strip()
    return _Run(run.column + begin, run.width - len(run.text) + len(text), text, run.look)


def _draw_text(run: _Run, top: float) -> str:
    look = run.look
    decorations = [name for name, on in (("underline", look.underlined), ("line-through", look.struck)) if on]
    attributes = {
        "x": f"{_compute_x(run.column):g}",
        "y": f"{top + _BASELINE:g}",
        "fill": _choose_foreground(look),
        "font-weight": "bold" if look.bold else "",
        "font-style": "italic" if look.italic else "",
        "fill-opacity": "0.62" if look.dim else "",
        "text-decoration": " ".join(decorations),
        # Whatever font is there, columns stay columns.
        "textLength": f"{run.width * _WIDTH:g}",
        "lengthAdjust": "spacingAndGlyphs",
    }
    written = " ".join(f'{name}="{value}"' for name, value in attributes.items() if value)
    return f'<text {written} xml:space="preserve">{escape(run.text, quote=False)}</text>'


def _draw_cursor(position: CursorPosition) -> Iterator[str]:
    yield (
        f'<rect x="{_compute_x(position.column):g}" y="{_BAR + position.row * _HEIGHT + 1}" width="{_WIDTH:g}" '
        f'height="{_HEIGHT - 2}" fill="{_CURSOR}" fill-opacity="0.75"/>'
    )


def _compute_x(column: int) -> float:
    return _PADDING + column * _WIDTH


def _choose_foreground(look: Cell) -> str:
    if look.reversed:
        return _to_hexadecimal(look.background, _BACKGROUND)
    return _to_hexadecimal(look.colour, _TEXT)


def _choose_background(look: Cell) -> str:
    """Return the colour behind the text, or nothing where it is the window's own."""
    if look.reversed:
        return _to_hexadecimal(look.colour, _TEXT)
    return _to_hexadecimal(look.background, "")


def _to_hexadecimal(colour: str, default: str) -> str:
    return default if colour == "default" else _COLOURS.get(colour) or f"#{colour}"

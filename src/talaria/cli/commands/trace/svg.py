"""Trace as a timeline: a self-contained SVG, and an HTML page with it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, tzinfo
from html import escape
from math import floor, log10

from msgspec import Struct

from talaria.cli.commands.trace.format import (
    count_steps,
    format_break_cost,
    format_duration,
    format_seconds,
    format_tool_outcome,
    format_turn_state,
    format_usage_summary,
)
from talaria.cli.terminal_text import cut, display_width, format_cell
from talaria.core.formatting import format_time
from talaria.core.messages import Usage
from talaria.observability.trace import ModelSpan, NumberedTurn, SessionTrace, Span, ToolSpan, TurnTrace

_MOST_TICKS = 8
_SHORTEST = 0.001


class TimeScale(Struct, frozen=True, kw_only=True):
    """Mapping of times of one turn to positions from ``left`` to ``left + width``."""

    start: datetime
    seconds: float
    left: float
    width: float

    def position(self, moment: datetime) -> float:
        """Return the position of a time; times outside are clamped to the edge."""
        return self.at((moment - self.start).total_seconds())

    def at(self, seconds: float) -> float:
        """Return the position of a number of seconds after the start."""
        return self.left + self.width * min(max(seconds / self.seconds, 0), 1)


def build_scale(trace: TurnTrace, *, left: float, width: float) -> TimeScale:
    """Return a scale that covers the whole turn."""
    start = trace.turn.started_at
    end = max([trace.ended_at, *(span.ended_at for span in trace.spans)])
    return TimeScale(start=start, seconds=max((end - start).total_seconds(), _SHORTEST), left=left, width=width)


def pack_lanes(spans: Iterable[Span]) -> list[list[Span]]:
    """Return the spans in as few rows as possible without overlaps, each row in order of time."""
    lanes: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: (span.started_at, span.number)):
        free = next((lane for lane in lanes if lane[-1].ended_at <= span.started_at), None)
        if free is None:
            lanes.append([span])
        else:
            free.append(span)
    return lanes


def iterate_ticks(seconds: float) -> Iterator[tuple[float, str]]:
    """Yield round numbers of seconds from zero, with their labels."""
    step = _round_step(seconds / _MOST_TICKS)
    digits = max(0, -floor(log10(step)))
    for count in range(floor(seconds / step + 1e-9) + 1):
        yield count * step, f"{count * step:.{digits}f} s"


def _round_step(least: float) -> float:
    unit = 10.0 ** floor(log10(least))
    return next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= least)


_WIDTH, _LEFT, _RIGHT = 1000, 64, 56


_PLOT = _WIDTH - _LEFT - _RIGHT


_HEAD, _TURN_HEAD, _LANE, _AXIS, _GAP = 62, 30, 26, 24, 22


_BAR, _THIN = 18, 6


_CHARACTER, _MARGIN, _WORTH_CUTTING = 6.3, 6, 6


_NOT_IN_XML = re.compile("[\ufffe\uffff]")
_LEGEND = (
    ("wait", "model, before the first text"),
    ("model", "model, answering"),
    ("ok", "tool"),
    ("failed", "failed"),
    ("interrupted", "interrupted"),
    ("running", "running"),
)


_STYLE = """\
.trace { --ink: #1f2328; --soft: #59636e; --line: #d8dee4; --paper: #ffffff; --stripe: #f6f8fa; --on: #ffffff;
  --model: #2f66c9; --wait: #86a9e8; --ok: #1f7a4d; --failed: #c0362c; --interrupted: #96600b; --running: #0b7285;
  --break: #a3198f; font: 11px system-ui, -apple-system, "Segoe UI", sans-serif; }
@media (prefers-color-scheme: dark) { .trace { --ink: #e6edf3; --soft: #9aa4af; --line: #30363d; --paper: #0d1117;
  --stripe: #161b22; --on: #ffffff; --model: #3f7ae0; --wait: #2b4c85; --ok: #23814f; --failed: #d0453b;
  --interrupted: #9a6a14; --running: #16808f; --break: #e07bd3; } }
.trace text { fill: var(--ink); } .trace .soft { fill: var(--soft); } .trace .on { fill: var(--on); }
.trace .title { font-size: 16px; font-weight: 600; } .trace .turn { font-size: 12px; font-weight: 600; }
.trace .paper { fill: var(--paper); } .trace .stripe { fill: var(--stripe); } .trace .grid { stroke: var(--line); }
.trace .model { fill: var(--model); } .trace .wait { fill: var(--wait); } .trace .ok { fill: var(--ok); }
.trace .failed { fill: var(--failed); } .trace .interrupted { fill: var(--interrupted); }
.trace .running { fill: var(--running); }
.trace .break { stroke: var(--break); stroke-width: 2; stroke-dasharray: 4 3; }
.trace text.breaks { fill: var(--break); }"""


_PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
body {{ margin: 0; padding: 16px; background: #ffffff; }}
svg {{ display: block; width: 100%; max-width: 1400px; min-width: 640px; height: auto; margin: 0 auto; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #0d1117; }} }}
</style>
</head>
<body>
{svg}</body>
</html>
"""


def draw_svg(trace: SessionTrace, zone: tzinfo | None) -> str:
    """Return the turns of a trace one below the other, each with its own time axis."""
    height, pieces = _HEAD, list(_draw_legend(trace))
    for turn in trace.turns:
        panel = _Panel(turn, height, zone)
        pieces += panel.draw()
        height += panel.height
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="trace" role="img" viewBox="0 0 {_WIDTH} {height}"'
        f' width="{_WIDTH}" height="{height}">'
    )
    title = f"<title>{_escape(_format_title(trace))}</title>"
    paper = f'<rect class="paper" width="{_WIDTH}" height="{height}"/>'
    return "\n".join([head, title, f"<style>\n{_STYLE}\n</style>", paper, *pieces, "</svg>"]) + "\n"


def draw_page(trace: SessionTrace, zone: tzinfo | None) -> str:
    """Return an HTML page with the same picture."""
    return _PAGE.format(title=_escape(_format_title(trace)), svg=draw_svg(trace, zone))


class _Panel:
    """Drawing of one turn: heading, a row for the model, rows for the tools, an axis."""

    def __init__(self, turn: NumberedTurn, top: int, zone: tzinfo | None) -> None:
        self._turn = turn
        self._top = top
        self._zone = zone
        self._scale = build_scale(turn.trace, left=_LEFT, width=_PLOT)
        models: Sequence[Span] = list(turn.trace.models())
        self._lanes = [*(pack_lanes(models) or [[]]), *pack_lanes(turn.trace.tools())]
        self._names = {0: "model", len(pack_lanes(models)) or 1: "tools"}

    @property
    def height(self) -> int:
        """Height of the panel."""
        return _TURN_HEAD + _LANE * len(self._lanes) + _AXIS + _GAP

    def draw(self) -> Iterator[str]:
        """Yield the SVG elements."""
        yield from self._draw_head()
        yield from self._draw_axis()
        for number, lane in enumerate(self._lanes):
            yield from self._draw_lane(self._top + _TURN_HEAD + number * _LANE, self._names.get(number, ""), lane)
        yield from self._draw_breaks()

    def _draw_head(self) -> Iterator[str]:
        trace = self._turn.trace
        turn = trace.turn
        elapsed = format_duration(turn.started_at, trace.ended_at)
        state = f"Turn {self._turn.number}: {format_turn_state(turn.state)} after {elapsed}"
        details = [
            format_time(turn.started_at, self._zone),
            count_steps(trace),
            format_usage_summary(trace.usage),
            format_cell(turn.error),
        ]
        line = " · ".join(filter(None, [state, *details]))
        yield _draw_text(_MARGIN, self._top + 18, cut(line, int(_WIDTH / _CHARACTER) - 10), "turn")

    def _draw_axis(self) -> Iterator[str]:
        top, bottom = self._top + _TURN_HEAD, self._top + _TURN_HEAD + _LANE * len(self._lanes)
        yield f'<rect class="stripe" x="{_LEFT}" y="{top}" width="{_PLOT}" height="{bottom - top}"/>'
        for seconds, label in iterate_ticks(self._scale.seconds):
            x = self._scale.at(seconds)
            yield f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom + 4}"/>'
            yield f'<text class="soft" x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{label}</text>'

    def _draw_lane(self, top: int, name: str, lane: Sequence[Span]) -> Iterator[str]:
        if name:
            yield _draw_text(_LEFT - 8, top + 17, name, "soft", anchor="end")
        for index, span in enumerate(lane):
            free = self._scale.position(lane[index + 1].started_at) if index + 1 < len(lane) else _WIDTH
            yield from _draw_bar(span, self._scale, top + (_LANE - _BAR) / 2, free)

    def _draw_breaks(self) -> Iterator[str]:
        top, bottom = self._top + _TURN_HEAD, self._top + _TURN_HEAD + _LANE * len(self._lanes)
        for prefix_break in self._turn.breaks:
            x = self._scale.position(prefix_break.at)
            cost = _escape(format_break_cost(prefix_break))
            yield f"<g><title>{_escape(f'prefix break: {prefix_break.reason}')}\n{cost}</title>"
            yield f'<line class="break" x1="{x:.1f}" y1="{top - 4}" x2="{x:.1f}" y2="{bottom}"/></g>'


def _draw_legend(trace: SessionTrace) -> Iterator[str]:
    yield _draw_text(_MARGIN, 24, cut(_format_title(trace), 100), "title")
    x = float(_MARGIN)
    shown = [*_LEGEND, *([("break", "prefix break")] if any(turn.breaks for turn in trace.turns) else [])]
    for name, meaning in shown:
        yield _draw_legend_mark(name, x)
        yield _draw_text(x + 20, 48, meaning, "soft")
        x += 20 + _CHARACTER * len(meaning) + 14


def _draw_legend_mark(name: str, x: float) -> str:
    if name == "break":
        return f'<line class="break" x1="{x + 7:.1f}" y1="36" x2="{x + 7:.1f}" y2="52"/>'
    tall = _THIN if name == "wait" else 12
    return f'<rect class="{name}" x="{x:.1f}" y="{44 - tall / 2}" width="14" height="{tall}" rx="2"/>'


def _draw_bar(span: Span, scale: TimeScale, top: float, free: float) -> Iterator[str]:
    """Yield a span: thin until the model's first text, then thick; tools are thick."""
    begin, end = scale.position(span.started_at), scale.position(span.ended_at)
    thick, name = begin, span.state if isinstance(span, ToolSpan) else "model"
    yield f"<g><title>{_escape(_format_label(span))}\n{_escape(_format_tooltip(span))}</title>"
    if isinstance(span, ModelSpan) and span.first_text_seconds:
        thick = min(end, begin + scale.at(span.first_text_seconds) - scale.left)
        yield _draw_rect("wait", begin, top + (_BAR - _THIN) / 2, thick - begin, _THIN)
    yield _draw_rect(name, thick, top, max(end - thick, 2), _BAR)
    yield _draw_caption(_format_label(span), thick, end, free, top + 13)
    yield "</g>"


def _draw_rect(name: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{name}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" rx="2"/>'


def _draw_caption(label: str, begin: float, end: float, free: float, y: float) -> str:
    """Return the label inside its bar, or after it if more fits there; cut or omitted if needed."""
    inside, outside = _fit(label, end - begin), _fit(label, free - end)
    if display_width(outside) > display_width(inside):
        return _draw_text(end + _MARGIN, y, outside, "soft")
    return _draw_text(begin + _MARGIN, y, inside, "on") if inside else ""


def _fit(label: str, width: float) -> str:
    characters = int((width - 2 * _MARGIN) / _CHARACTER)
    return cut(label, characters) if characters >= min(display_width(label), _WORTH_CUTTING) else ""


def _format_label(span: Span) -> str:
    return format_cell(span.model if isinstance(span, ModelSpan) else f"{span.name} {span.summary}".strip())


def _format_tooltip(span: Span) -> str:
    elapsed = format_duration(span.started_at, span.ended_at)
    if isinstance(span, ToolSpan):
        return f"{elapsed} · {format_tool_outcome(span)}"
    first = f"first text after {format_seconds(span.first_text_seconds)}" if span.first_text_seconds is not None else ""
    return " · ".join(filter(None, [elapsed, first, format_usage_summary(span.usage), _format_context(span)]))


def _format_context(span: ModelSpan) -> str:
    return f"context {span.context}" if span.context else ""


def _format_title(trace: SessionTrace) -> str:
    usage: Usage = trace.usage
    return " · ".join(filter(None, [format_cell(trace.session.title) or trace.session.id, format_usage_summary(usage)]))


def _draw_text(x: float, y: float, text: str, name: str, *, anchor: str = "start") -> str:
    return f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{_escape(text)}</text>'


def _escape(text: str) -> str:
    """Return text escaped for XML."""
    return escape(_NOT_IN_XML.sub("\ufffd", format_cell(text)))

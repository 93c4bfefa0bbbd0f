"""A trace as a timeline picture: an SVG that needs nothing else, and a web page around it."""

import re
from collections.abc import Iterator, Sequence
from datetime import tzinfo
from html import escape

from talaria.cli.cells import cell, columns, cut
from talaria.cli.traces.lanes import Scale, pack, scale_of, ticks
from talaria.cli.traces.reading import NumberedTurn, SessionTrace
from talaria.cli.traces.wording import duration, ending, in_seconds, outcome, price, steps_counted, used
from talaria.core.messages import Usage
from talaria.core.wording import clock_time
from talaria.sessions.trace import ModelSpan, Span, ToolSpan

_WIDTH, _LEFT, _RIGHT = 1000, 64, 56
_PLOT = _WIDTH - _LEFT - _RIGHT
_HEAD, _TURN_HEAD, _LANE, _AXIS, _GAP = 62, 30, 26, 24, 22
_BAR, _THIN = 18, 6
_CHARACTER, _MARGIN, _WORTH_CUTTING = 6.3, 6, 6
_NOT_IN_XML = re.compile("[\ufffe\uffff]")
_LEGEND = (
    ("wait", "model, before its first text"),
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
    """Return the turns of a trace below each other, each on an axis of its own seconds."""
    height, pieces = _HEAD, list(_heading(trace))
    for turn in trace.turns:
        panel = _Panel(turn, height, zone)
        pieces += panel.draw()
        height += panel.height
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="trace" role="img" viewBox="0 0 {_WIDTH} {height}"'
        f' width="{_WIDTH}" height="{height}">'
    )
    title = f"<title>{_text(_title(trace))}</title>"
    paper = f'<rect class="paper" width="{_WIDTH}" height="{height}"/>'
    return "\n".join([head, title, f"<style>\n{_STYLE}\n</style>", paper, *pieces, "</svg>"]) + "\n"


def draw_page(trace: SessionTrace, zone: tzinfo | None) -> str:
    """Return the same picture within a web page."""
    return _PAGE.format(title=_text(_title(trace)), svg=draw_svg(trace, zone))


class _Panel:
    """One turn: what it was, a lane for the model, lanes for the tools, an axis."""

    def __init__(self, turn: NumberedTurn, top: int, zone: tzinfo | None) -> None:
        self._turn = turn
        self._top = top
        self._zone = zone
        self._scale = scale_of(turn.trace, left=_LEFT, width=_PLOT)
        models: Sequence[Span] = list(turn.trace.models())
        self._lanes = [*(pack(models) or [[]]), *pack(turn.trace.tools())]
        self._names = {0: "model", len(pack(models)) or 1: "tools"}

    @property
    def height(self) -> int:
        """How much room it takes."""
        return _TURN_HEAD + _LANE * len(self._lanes) + _AXIS + _GAP

    def draw(self) -> Iterator[str]:
        """Yield what it is made of."""
        yield from self._head()
        yield from self._axis()
        for number, lane in enumerate(self._lanes):
            yield from self._lane(self._top + _TURN_HEAD + number * _LANE, self._names.get(number, ""), lane)
        yield from self._breaks()

    def _head(self) -> Iterator[str]:
        trace = self._turn.trace
        kept = trace.turn
        took = duration(kept.started_at, trace.ended_at)
        state = f"Turn {self._turn.number}: {ending(kept.state)} after {took}"
        remarks = [clock_time(kept.started_at, self._zone), steps_counted(trace), used(trace.usage), cell(kept.error)]
        line = " · ".join(filter(None, [state, *remarks]))
        yield _words(_MARGIN, self._top + 18, cut(line, int(_WIDTH / _CHARACTER) - 10), "turn")

    def _axis(self) -> Iterator[str]:
        top, bottom = self._top + _TURN_HEAD, self._top + _TURN_HEAD + _LANE * len(self._lanes)
        yield f'<rect class="stripe" x="{_LEFT}" y="{top}" width="{_PLOT}" height="{bottom - top}"/>'
        for seconds, label in ticks(self._scale.seconds):
            x = self._scale.at(seconds)
            yield f'<line class="grid" x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{bottom + 4}"/>'
            yield f'<text class="soft" x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">{label}</text>'

    def _lane(self, top: int, name: str, lane: Sequence[Span]) -> Iterator[str]:
        if name:
            yield _words(_LEFT - 8, top + 17, name, "soft", anchor="end")
        for place, span in enumerate(lane):
            free = self._scale.place(lane[place + 1].started_at) if place + 1 < len(lane) else _WIDTH
            yield from _bar(span, self._scale, top + (_LANE - _BAR) / 2, free)

    def _breaks(self) -> Iterator[str]:
        top, bottom = self._top + _TURN_HEAD, self._top + _TURN_HEAD + _LANE * len(self._lanes)
        for broken in self._turn.breaks:
            x = self._scale.place(broken.at)
            yield f"<g><title>{_text(f'prefix break: {broken.reason}')}\n{_text(price(broken))}</title>"
            yield f'<line class="break" x1="{x:.1f}" y1="{top - 4}" x2="{x:.1f}" y2="{bottom}"/></g>'


def _heading(trace: SessionTrace) -> Iterator[str]:
    yield _words(_MARGIN, 24, cut(_title(trace), 100), "title")
    x = float(_MARGIN)
    shown = [*_LEGEND, *([("break", "prefix break")] if any(turn.breaks for turn in trace.turns) else [])]
    for name, meaning in shown:
        yield _sample(name, x)
        yield _words(x + 20, 48, meaning, "soft")
        x += 20 + _CHARACTER * len(meaning) + 14


def _sample(name: str, x: float) -> str:
    if name == "break":
        return f'<line class="break" x1="{x + 7:.1f}" y1="36" x2="{x + 7:.1f}" y2="52"/>'
    tall = _THIN if name == "wait" else 12
    return f'<rect class="{name}" x="{x:.1f}" y="{44 - tall / 2}" width="14" height="{tall}" rx="2"/>'


def _bar(span: Span, scale: Scale, top: float, free: float) -> Iterator[str]:
    """Yield a span: thin while a model keeps us waiting, thick from its first text on; tools are thick."""
    begin, end = scale.place(span.started_at), scale.place(span.ended_at)
    thick, name = begin, span.state if isinstance(span, ToolSpan) else "model"
    yield f"<g><title>{_text(_label(span))}\n{_text(_tooltip(span))}</title>"
    if isinstance(span, ModelSpan) and span.first_text_seconds:
        thick = min(end, begin + scale.at(span.first_text_seconds) - scale.left)
        yield _block("wait", begin, top + (_BAR - _THIN) / 2, thick - begin, _THIN)
    yield _block(name, thick, top, max(end - thick, 2), _BAR)
    yield _caption(_label(span), thick, end, free, top + 13)
    yield "</g>"


def _block(name: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{name}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" rx="2"/>'


def _caption(label: str, begin: float, end: float, free: float, y: float) -> str:
    """Return the label in its bar, or behind it where more of it has room; cut, or left out, where none of it has."""
    inside, behind = _fitting(label, end - begin), _fitting(label, free - end)
    if columns(behind) > columns(inside):
        return _words(end + _MARGIN, y, behind, "soft")
    return _words(begin + _MARGIN, y, inside, "on") if inside else ""


def _fitting(label: str, width: float) -> str:
    room = int((width - 2 * _MARGIN) / _CHARACTER)
    return cut(label, room) if room >= min(columns(label), _WORTH_CUTTING) else ""


def _label(span: Span) -> str:
    return cell(span.model if isinstance(span, ModelSpan) else f"{span.name} {span.summary}".strip())


def _tooltip(span: Span) -> str:
    took = duration(span.started_at, span.ended_at)
    if isinstance(span, ToolSpan):
        return f"{took} · {outcome(span)}"
    first = f"first text after {in_seconds(span.first_text_seconds)}" if span.first_text_seconds is not None else ""
    return " · ".join(filter(None, [took, first, used(span.usage), _context(span)]))


def _context(span: ModelSpan) -> str:
    return f"context {span.context}" if span.context else ""


def _title(trace: SessionTrace) -> str:
    usage: Usage = trace.usage
    return " · ".join(filter(None, [cell(trace.session.title) or trace.session.id, used(usage)]))


def _words(x: float, y: float, text: str, name: str, *, anchor: str = "start") -> str:
    return f'<text class="{name}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{_text(text)}</text>'


def _text(text: str) -> str:
    """Return text that may stand in XML."""
    return escape(_NOT_IN_XML.sub("\ufffd", cell(text)))

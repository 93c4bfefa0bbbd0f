"""Where things stand on a timeline: lanes on which nothing overlaps, a scale, and round figures for its axis."""

from collections.abc import Iterable, Iterator
from datetime import datetime
from math import floor, log10

from msgspec import Struct

from talaria.sessions.trace import Span, TurnTrace

_MOST_TICKS = 8
_SHORTEST = 0.001


class Scale(Struct, frozen=True, kw_only=True):
    """Moments of one turn as places between ``left`` and ``left + width``."""

    start: datetime
    seconds: float
    left: float
    width: float

    def place(self, moment: datetime) -> float:
        """Return where a moment stands; what lies outside is put on the edge."""
        return self.at((moment - self.start).total_seconds())

    def at(self, seconds: float) -> float:
        """Return where so many seconds behind the start stand."""
        return self.left + self.width * min(max(seconds / self.seconds, 0), 1)


def scale_of(trace: TurnTrace, *, left: float, width: float) -> Scale:
    """Return a scale on which the whole turn has room."""
    start = trace.turn.started_at
    end = max([trace.ended_at, *(span.ended_at for span in trace.spans)])
    return Scale(start=start, seconds=max((end - start).total_seconds(), _SHORTEST), left=left, width=width)


def pack(spans: Iterable[Span]) -> list[list[Span]]:
    """Return the spans on as few lanes as keep them from overlapping, each lane in the order of time."""
    lanes: list[list[Span]] = []
    for span in sorted(spans, key=lambda span: (span.started_at, span.number)):
        free = next((lane for lane in lanes if lane[-1].ended_at <= span.started_at), None)
        if free is None:
            lanes.append([span])
        else:
            free.append(span)
    return lanes


def ticks(seconds: float) -> Iterator[tuple[float, str]]:
    """Yield round numbers of seconds from zero on, and how to write them."""
    step = _round_step(seconds / _MOST_TICKS)
    digits = max(0, -floor(log10(step)))
    for count in range(floor(seconds / step + 1e-9) + 1):
        yield count * step, f"{count * step:.{digits}f} s"


def _round_step(least: float) -> float:
    unit = 10.0 ** floor(log10(least))
    return next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= least)

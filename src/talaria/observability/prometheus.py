"""Metrics of a process in Prometheus text format, and the lag of its event loop."""

import asyncio
from collections import deque
from collections.abc import Iterable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_INTERVAL = 0.5
_MAX_SAMPLES = 120  # one minute of samples


class LoopLag:
    """Measures the lag of the event loop: how late a scheduled call comes."""

    def __init__(self) -> None:
        self._lags: deque[float] = deque([0.0], maxlen=_MAX_SAMPLES)
        self._next: asyncio.TimerHandle | None = None

    @property
    def last(self) -> float:
        """Return the last lag, in seconds."""
        return self._lags[-1]

    @property
    def worst(self) -> float:
        """Return the longest lag of the last minute, in seconds."""
        return max(self._lags)

    def start(self) -> None:
        """Measure twice a second until stopped."""
        loop = asyncio.get_running_loop()
        self._next = loop.call_at(loop.time() + _INTERVAL, self._measure, loop.time() + _INTERVAL)

    def stop(self) -> None:
        """Stop measuring."""
        if self._next is not None:
            self._next.cancel()

    def _measure(self, due: float) -> None:
        self._lags.append(max(asyncio.get_running_loop().time() - due, 0.0))
        self.start()


def render_metric(name: str, kind: str, about: str, value: float) -> str:
    """Return one metric."""
    return render_family(name, kind, about, [("", value)])


def render_family(name: str, kind: str, about: str, samples: Iterable[tuple[str, float]]) -> str:
    """Return metrics of one name, each with its label."""
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *(f"{name}{label} {value}" for label, value in samples)]
    return "\n".join(lines) + "\n"


def label(**values: str) -> str:
    """Return the label part of a metric."""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in values.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

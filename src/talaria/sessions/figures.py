"""Figures of a process as text in the format of Prometheus, and how late its event loop is."""

import asyncio
from collections import deque
from collections.abc import Iterable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PACE = 0.5
_KEPT = 120  # a minute of beats


class Pulse:
    """Measures how late the event loop is: by how much a call comes after the moment it was asked for."""

    def __init__(self) -> None:
        self._lags: deque[float] = deque([0.0], maxlen=_KEPT)
        self._next: asyncio.TimerHandle | None = None

    @property
    def last(self) -> float:
        """The lag that was last measured, in seconds."""
        return self._lags[-1]

    @property
    def worst(self) -> float:
        """The longest lag of the last minute, in seconds."""
        return max(self._lags)

    def start(self) -> None:
        """Measure twice a second until stopped."""
        loop = asyncio.get_running_loop()
        self._next = loop.call_at(loop.time() + _PACE, self._beat, loop.time() + _PACE)

    def stop(self) -> None:
        """Measure no more."""
        if self._next is not None:
            self._next.cancel()

    def _beat(self, due: float) -> None:
        self._lags.append(max(asyncio.get_running_loop().time() - due, 0.0))
        self.start()


def single(name: str, kind: str, about: str, value: float) -> str:
    """Return one figure."""
    return family(name, kind, about, [("", value)])


def family(name: str, kind: str, about: str, samples: Iterable[tuple[str, float]]) -> str:
    """Return figures of one name, each with its label."""
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *(f"{name}{label} {value}" for label, value in samples)]
    return "\n".join(lines) + "\n"


def label(**values: str) -> str:
    """Return what stands in braces behind the name of a figure."""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in values.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

"""The figures of the API, as text in the format of Prometheus."""

from bisect import bisect_left
from collections import Counter
from datetime import UTC, datetime

from talaria.sessions.ending import memory_in_use
from talaria.sessions.figures import Pulse, family, label, single

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Figures:
    """Counts requests by route and status, and how long they took."""

    def __init__(self) -> None:
        self.pulse = Pulse()
        self._started = datetime.now(UTC)
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets = [0] * (len(_BOUNDS) + 1)
        self._seconds = 0.0

    def count(self, path: str, status: int, seconds: float) -> None:
        """Take note of a request that is over; ``path`` is that of the route, empty where there was none."""
        self._requests[path, status] += 1
        self._buckets[bisect_left(_BOUNDS, seconds)] += 1
        self._seconds += seconds

    @property
    def uptime(self) -> int:
        """How long there have been figures, in whole seconds."""
        return int((datetime.now(UTC) - self._started).total_seconds())

    def text(self, version: str, *, running: int, turns: int, agents: int) -> str:
        """Return all of them; ``running`` requests, ``turns`` of those, and agents that are kept."""
        counted = [
            (label(route=path or "none", status=str(status)), number)
            for (path, status), number in sorted(self._requests.items())
        ]
        pulse = self.pulse
        return "".join(
            (
                family("talaria_build_info", "gauge", "The version that runs.", [(label(version=version), 1)]),
                single("process_start_time_seconds", "gauge", "When this began.", self._started.timestamp()),
                single("process_resident_memory_bytes", "gauge", "Memory in use.", memory_in_use()),
                single("talaria_event_loop_lag_seconds", "gauge", "How late the event loop was just now.", pulse.last),
                single("talaria_event_loop_lag_max_seconds", "gauge", "The same, at worst in a minute.", pulse.worst),
                single("talaria_rooms_open", "gauge", "Conversations that are kept open.", agents),
                single("talaria_turns_running", "gauge", "Turns that run.", turns),
                single("talaria_api_requests_running", "gauge", "Requests that are being answered.", running),
                family("talaria_api_requests_total", "counter", "Requests that were answered.", counted),
                self._durations(),
            )
        )

    def _durations(self) -> str:
        name, total, lines = "talaria_api_request_seconds", 0, []
        for bound, number in zip((*_BOUNDS, float("inf")), self._buckets, strict=True):
            total += number
            lines.append((f"_bucket{label(le='+Inf' if bound == float('inf') else f'{bound:g}')}", total))
        return family(
            name, "histogram", "How long they took.", [*lines, ("_sum", round(self._seconds, 6)), ("_count", total)]
        )

"""Metrics of the HTTP server, in Prometheus text format."""

from bisect import bisect_left
from collections import Counter
from datetime import UTC, datetime

from talaria.observability.prometheus import LoopLag, label, render_family, render_metric
from talaria.observability.shutdown_report import memory_in_use

_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class RequestMetrics:
    """Counts requests by route and status, and their duration."""

    def __init__(self) -> None:
        self.pulse = LoopLag()
        self._started = datetime.now(UTC)
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets = [0] * (len(_BOUNDS) + 1)
        self._seconds = 0.0

    def count(self, path: str, status: int, seconds: float) -> None:
        """Record a finished request; ``path`` is that of the route, empty if there was none."""
        self._requests[path, status] += 1
        self._buckets[bisect_left(_BOUNDS, seconds)] += 1
        self._seconds += seconds

    @property
    def uptime(self) -> int:
        """Return the uptime in whole seconds."""
        return int((datetime.now(UTC) - self._started).total_seconds())

    def text(self, version: str, *, running: int, turns: int, agents: int) -> str:
        """Return all metrics, given the ``running`` requests, their ``turns``, and the open agents."""
        samples = [
            (label(route=path or "none", status=str(status)), number)
            for (path, status), number in sorted(self._requests.items())
        ]
        pulse = self.pulse
        return "".join(
            (
                render_family("talaria_build_info", "gauge", "The running version.", [(label(version=version), 1)]),
                render_metric(
                    "process_start_time_seconds", "gauge", "Start time of the process.", self._started.timestamp()
                ),
                render_metric("process_resident_memory_bytes", "gauge", "Memory in use.", memory_in_use()),
                render_metric(
                    "talaria_event_loop_lag_seconds", "gauge", "Current delay of the event loop.", pulse.last
                ),
                render_metric(
                    "talaria_event_loop_lag_max_seconds",
                    "gauge",
                    "Largest delay of the event loop within a minute.",
                    pulse.worst,
                ),
                render_metric("talaria_sessions_open", "gauge", "Open sessions.", agents),
                render_metric("talaria_turns_running", "gauge", "Running turns.", turns),
                render_metric("talaria_api_requests_running", "gauge", "Requests in progress.", running),
                render_family("talaria_api_requests_total", "counter", "Completed requests.", samples),
                self._render_durations(),
            )
        )

    def _render_durations(self) -> str:
        name, total, lines = "talaria_api_request_seconds", 0, []
        for bound, number in zip((*_BOUNDS, float("inf")), self._buckets, strict=True):
            total += number
            lines.append((f"_bucket{label(le='+Inf' if bound == float('inf') else f'{bound:g}')}", total))
        return render_family(
            name,
            "histogram",
            "Duration of completed requests.",
            [*lines, ("_sum", round(self._seconds, 6)), ("_count", total)],
        )

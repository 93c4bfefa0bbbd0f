"""The figures of a gateway, as text in the format of Prometheus."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping

from talaria.contracts.store import Transaction
from talaria.gateway.gateway import Gateway
from talaria.sessions.ending import memory_in_use

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


def count_waiting(tx: Transaction) -> Mapping[str, int]:
    """Return how many replies are still to go out, by network."""
    return Counter(item.address.platform for item in tx.outbox.find() if item.state != "failed")


def metrics(gateway: Gateway, pulse: Pulse, waiting: Mapping[str, int] | None) -> str:
    """Return all figures; ``waiting`` is `count_waiting`, or ``None`` where the store does not answer."""
    status = gateway.status()
    store_up = waiting is not None and not gateway.presence.trouble
    up = [(_label("model", one.model), int(not one.error)) for one in gateway.models.states]
    failures = [(_label("model", one.model), one.failures) for one in gateway.models.states]
    networks = [(line.network.status, line.delivery.status) for line in gateway.lines]
    text = [
        _family("talaria_build_info", "gauge", "The version that runs.", [(_label("version", status.version), 1)]),
        _single("process_start_time_seconds", "gauge", "When the process began.", status.started.timestamp()),
        _single("process_resident_memory_bytes", "gauge", "Memory in use.", memory_in_use()),
        _single("talaria_event_loop_lag_seconds", "gauge", "How late the event loop was just now.", pulse.last),
        _single("talaria_event_loop_lag_max_seconds", "gauge", "The same, at worst in the last minute.", pulse.worst),
        _single("talaria_rooms_open", "gauge", "Conversations that are kept open.", status.rooms),
        _single("talaria_turns_running", "gauge", "Turns that run.", status.turns),
        _single("talaria_store_up", "gauge", "Whether the store answers and can be written to.", int(store_up)),
        _family("talaria_model_up", "gauge", "Whether a model answered when it was last asked.", up),
        _family("talaria_model_failures_total", "counter", "Calls that a model did not answer.", failures),
    ]
    for name, kind, about, values in (
        (
            "network_up",
            "gauge",
            "Whether this process is connected.",
            [int(n.state == "connected") for n, _ in networks],
        ),
        ("received_total", "counter", "Messages that came in.", [n.received for n, _ in networks]),
        ("delivered_total", "counter", "Replies that went out.", [d.sent for _, d in networks]),
        ("retried_total", "counter", "Deliveries that were put off.", [d.retried for _, d in networks]),
        ("failed_total", "counter", "Replies that were given up.", [d.failed for _, d in networks]),
        ("repeated_total", "counter", "Replies that may have gone out twice.", [d.repeated for _, d in networks]),
    ):
        labels = (_label("network", network.name) for network, _ in networks)
        text.append(_family(f"talaria_{name}", kind, about, zip(labels, values, strict=True)))
    if waiting is not None:
        left = [(_label("network", network.name), waiting.get(network.name, 0)) for network, _ in networks]
        text.append(_family("talaria_outbox_waiting", "gauge", "Replies that are still to go out.", left))
    return "".join(text)


def _single(name: str, kind: str, about: str, value: float) -> str:
    return _family(name, kind, about, [("", value)])


def _family(name: str, kind: str, about: str, samples: Iterable[tuple[str, float]]) -> str:
    lines = [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *(f"{name}{label} {value}" for label, value in samples)]
    return "\n".join(lines) + "\n"


def _label(name: str, value: str) -> str:
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{{{name}="{escaped}"}}'

"""The figures of a gateway, as text in the format of Prometheus."""

from collections import Counter
from collections.abc import Mapping

from talaria.contracts.store import Transaction
from talaria.gateway.gateway import Gateway
from talaria.sessions.ending import memory_in_use
from talaria.sessions.figures import Pulse, family, label, single


def count_waiting(tx: Transaction) -> Mapping[str, int]:
    """Return how many replies are still to go out, by network."""
    return Counter(item.address.platform for item in tx.outbox.find() if item.state != "failed")


def metrics(gateway: Gateway, pulse: Pulse, waiting: Mapping[str, int] | None) -> str:
    """Return all figures; ``waiting`` is `count_waiting`, or ``None`` where the store does not answer."""
    status = gateway.status()
    store_up = waiting is not None and not gateway.presence.trouble
    up = [(label(model=one.model), int(not one.error)) for one in gateway.models.states]
    failures = [(label(model=one.model), one.failures) for one in gateway.models.states]
    networks = [(line.network.status, line.delivery.status) for line in gateway.lines]
    text = [
        family("talaria_build_info", "gauge", "The version that runs.", [(label(version=status.version), 1)]),
        single("process_start_time_seconds", "gauge", "When the process began.", status.started.timestamp()),
        single("process_resident_memory_bytes", "gauge", "Memory in use.", memory_in_use()),
        single("talaria_event_loop_lag_seconds", "gauge", "How late the event loop was just now.", pulse.last),
        single("talaria_event_loop_lag_max_seconds", "gauge", "The same, at worst in the last minute.", pulse.worst),
        single("talaria_rooms_open", "gauge", "Conversations that are kept open.", status.rooms),
        single("talaria_turns_running", "gauge", "Turns that run.", status.turns),
        single("talaria_store_up", "gauge", "Whether the store answers and can be written to.", int(store_up)),
        family("talaria_model_up", "gauge", "Whether a model answered when it was last asked.", up),
        family("talaria_model_failures_total", "counter", "Calls that a model did not answer.", failures),
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
        labels = (label(network=network.name) for network, _ in networks)
        text.append(family(f"talaria_{name}", kind, about, zip(labels, values, strict=True)))
    if waiting is not None:
        left = [(label(network=network.name), waiting.get(network.name, 0)) for network, _ in networks]
        text.append(family("talaria_outbox_waiting", "gauge", "Replies that are still to go out.", left))
    return "".join(text)

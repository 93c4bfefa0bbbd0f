"""What was seen lately, so that it need not be asked for again."""

from collections import OrderedDict

from talaria.platforms.matrix.events import RoomEvent

_KEPT = 1000


class RecentEvents:
    """The events that were seen last, by their ids."""

    def __init__(self) -> None:
        self._events: OrderedDict[str, RoomEvent] = OrderedDict()

    def get(self, event_id: str) -> RoomEvent | None:
        """Return an event if it is known."""
        return self._events.get(event_id)

    def add(self, event: RoomEvent) -> None:
        """Keep an event, and forget the one that came first if these are too many."""
        self._events[event.event_id] = event
        self._events.move_to_end(event.event_id)
        if len(self._events) > _KEPT:
            self._events.popitem(last=False)

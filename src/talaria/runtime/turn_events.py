"""Event stream of an open session: turns publish to it, surfaces, hooks and watchers subscribe."""

import logging
from collections.abc import Callable, Sequence

from talaria.core.events import ToolProgressed, TurnBegan, TurnEnd, TurnEvent

TurnSubscriber = Callable[[TurnEvent], None]
Unsubscribe = Callable[[], None]

log = logging.getLogger(__name__)


class TurnEvents:
    """The events of one open session, in order.

    Subscribers are called in the order in which they subscribed, in the task that publishes, so they must not block.
    An exception of a subscriber is logged; the turn and the other subscribers continue.
    """

    def __init__(self) -> None:
        self._subscribers: tuple[TurnSubscriber, ...] = ()
        self._turn: list[TurnEvent] = []

    @property
    def turn(self) -> Sequence[TurnEvent]:
        """The events of the running turn so far, for a late subscriber to replay; empty between turns.

        Each turn has its own sequence, which grows until the turn ends. The stream releases it then. Tool progress is
        left out: it can be long, and the tool results contain what matters of it.
        """
        return self._turn

    def subscribe(self, subscriber: TurnSubscriber) -> Unsubscribe:
        """Call ``subscriber`` with every event from now on; return a function that ends the subscription."""
        self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            self._subscribers = tuple(one for one in self._subscribers if one is not subscriber)

        return unsubscribe

    def publish(self, event: TurnEvent) -> None:
        """Pass an event to all subscribers. Never waits and never raises."""
        if isinstance(event, TurnBegan):
            self._turn = [event]
        elif self._turn and not isinstance(event, ToolProgressed):
            self._turn.append(event)
        for subscriber in self._subscribers:
            _call(subscriber, event)
        if isinstance(event, TurnEnd):
            self._turn = []


def _call(subscriber: TurnSubscriber, event: TurnEvent) -> None:
    try:
        subscriber(event)
    except Exception:  # a bug in a subscriber must not end the turn
        log.exception("a subscriber failed on %s", type(event).__name__)

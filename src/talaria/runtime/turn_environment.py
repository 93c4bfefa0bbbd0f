"""Events of the turns of a session, and the spending caps that apply to them."""

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta

from talaria.contracts.provider import ModelInfo
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.sessions import Session
from talaria.contracts.stores.turns import Cap, Hold
from talaria.core.errors import PriceUnknown
from talaria.core.events import ToolProgressed, TurnBegan, TurnEnd, TurnEvent
from talaria.sessions.branches import session_account
from talaria.settings.model import BudgetSettings, Settings

_HOLD_LIFETIME = timedelta(minutes=30)
_MICRODOLLARS = 1_000_000
CapSource = Callable[[Transaction], Sequence[Cap]]


class StoredBudget:
    """Implementation of `Budget` with the ledger of the store; ``caps`` is fixed or read for each call."""

    def __init__(self, store: Store, caps: Sequence[Cap] | CapSource) -> None:
        self._store = store
        self._caps: CapSource = caps if callable(caps) else lambda tx: caps

    def has_caps(self, tx: Transaction) -> bool:
        """Return whether any cap applies now."""
        return bool(self._caps(tx))

    async def reserve(self, amount: int, model: ModelInfo) -> Hold | None:
        """Reserve an amount on every account, or raise `OverBudget` or `PriceUnknown`; without caps, write nothing."""
        if not await self._store.read(self.has_caps):
            return None
        if not model.has_price:
            raise PriceUnknown(model.name)
        return await self._store.write(lambda tx: self._reserve(tx, amount))

    async def settle(self, hold: Hold | None, spent: int) -> None:
        """Replace a hold with the amount that was spent."""
        if hold is not None:
            await self._store.write(lambda tx: tx.ledger.settle(hold, spent))

    def _reserve(self, tx: Transaction, amount: int) -> Hold | None:
        caps = self._caps(tx)
        return tx.ledger.reserve(caps, amount, _HOLD_LIFETIME) if caps else None


TurnSubscriber = Callable[[TurnEvent], None]
Unsubscribe = Callable[[], None]
log = logging.getLogger(__name__)


def build_caps(budget: BudgetSettings, session: Session) -> list[Cap]:
    """Return the spending caps of a session: this month's in total and for its person, and its own."""
    caps = [cap for cap in build_monthly_caps(budget, session.owner) if cap.limit]
    if budget.session:
        caps.append(Cap(session_account(session.id), round(budget.session * _MICRODOLLARS)))
    return caps


def build_monthly_caps(budget: BudgetSettings, person: str) -> tuple[Cap, Cap]:
    """Return the caps of this month: in total, and for a person; a limit of 0 means none."""
    month = f"{datetime.now(UTC):%Y-%m}"
    return (
        Cap(f"all:{month}", round(budget.total * _MICRODOLLARS)),
        Cap(f"person:{person}:{month}", round(budget.person * _MICRODOLLARS)),
    )


def build_persona_caps(settings: Settings, name: str) -> tuple[Cap, ...]:
    """Return the cap of a persona for this month, if it has one."""
    persona = settings.personas.get(name)
    if persona is None or not persona.budget:
        return ()
    return (Cap(f"persona:{name}:{datetime.now(UTC):%Y-%m}", round(persona.budget * _MICRODOLLARS)),)


class TurnEvents:
    """The events of one open session, in order.

    Subscribers are called in the order in which they subscribed, in the task that publishes, so they must not block.
    An exception of a subscriber is logged; the turn and the other subscribers continue.

    ``turn`` are the events of the running turn so far, for a late subscriber to replay; empty between turns. Each turn
    has its own sequence, which grows until the turn ends. The stream releases it then. Tool progress is left out: it
    can be long, and the tool results contain what matters of it.
    """

    def __init__(self) -> None:
        self._subscribers: tuple[TurnSubscriber, ...] = ()
        self.turn: list[TurnEvent] = []

    def subscribe(self, subscriber: TurnSubscriber) -> Unsubscribe:
        """Call ``subscriber`` with every event from now on; return a function that ends the subscription."""
        self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            self._subscribers = tuple(one for one in self._subscribers if one is not subscriber)

        return unsubscribe

    def publish(self, event: TurnEvent) -> None:
        """Pass an event to all subscribers. Never waits and never raises."""
        if isinstance(event, TurnBegan):
            self.turn = [event]
        elif self.turn and not isinstance(event, ToolProgressed):
            self.turn.append(event)
        for subscriber in self._subscribers:
            _call(subscriber, event)
        if isinstance(event, TurnEnd):
            self.turn = []


def _call(subscriber: TurnSubscriber, event: TurnEvent) -> None:
    try:
        subscriber(event)
    except Exception:  # a bug in a subscriber must not end the turn
        log.exception("a subscriber failed on %s", type(event).__name__)

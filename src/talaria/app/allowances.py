"""What turns and conversations may take: steps, tokens, time and money."""

from collections.abc import Callable
from datetime import UTC, datetime

from talaria.agent.budget import Budget
from talaria.agent.surroundings import Limits
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.ledger import Cap
from talaria.contracts.stores.sessions import Session
from talaria.goals.keeping import goal_caps
from talaria.sessions.branching import session_account
from talaria.sessions.budget import StoredBudget
from talaria.sessions.chat import ChatWish
from talaria.sessions.mandate import Mandate
from talaria.settings.model import Settings

_MICRODOLLARS = 1_000_000


def limits_of(settings: Settings, mandate: Mandate | None) -> Limits:
    """Return how far one turn may go."""
    return Limits(
        iterations=settings.agent.max_iterations,
        tokens=settings.agent.max_turn_tokens or None,
        cost_microdollars=round(settings.budget.turn * _MICRODOLLARS) or None,
        seconds=mandate.seconds if mandate is not None else settings.agent.max_turn_seconds or None,
    )


def caps_for(settings: Settings, session: Session) -> list[Cap]:
    """Return what may be spent: on everything and on a person in this month, and on a conversation."""
    month = f"{datetime.now(UTC):%Y-%m}"
    caps = (
        (f"all:{month}", settings.budget.total),
        (f"person:{session.owner}:{month}", settings.budget.person),
        (session_account(session.id), settings.budget.session),
    )
    return [Cap(account, round(dollars * _MICRODOLLARS)) for account, dollars in caps if dollars]


def budget_of(settings: Callable[[], Settings], store: Store, session: Session, wish: ChatWish) -> Budget:
    """Return what a conversation may spend, under the caps of its goals and of those that it works for.

    The caps are those of the ``settings`` in force at each call of a model.
    """
    served = (session.id, *(wish.mandate.ancestors if wish.mandate else ()))

    def caps(tx: Transaction) -> tuple[Cap, ...]:
        return *caps_for(settings(), session), *(cap for one in served for cap in goal_caps(tx, one)), *wish.caps

    return StoredBudget(store, caps)

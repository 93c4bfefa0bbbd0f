"""Limits of turns and sessions: steps, tokens, time and money."""

from collections.abc import Callable
from datetime import UTC, datetime

from talaria.agent.environment import Budget, Limits
from talaria.contracts.store import Store, Transaction
from talaria.contracts.stores.ledger import Cap
from talaria.contracts.stores.sessions import Session
from talaria.goals.goal_store import goal_caps
from talaria.runtime.budget import StoredBudget
from talaria.runtime.open_session import DelegatedScope, OpenRequest
from talaria.sessions.branches import session_account
from talaria.settings.model import Settings

_MICRODOLLARS = 1_000_000


def build_limits(settings: Settings, delegated_scope: DelegatedScope | None) -> Limits:
    """Return the limits of one turn."""
    return Limits(
        iterations=settings.agent.max_iterations,
        tokens=settings.agent.max_turn_tokens or None,
        cost_microdollars=round(settings.budget.turn * _MICRODOLLARS) or None,
        seconds=delegated_scope.seconds if delegated_scope is not None else settings.agent.max_turn_seconds or None,
    )


def build_caps(settings: Settings, session: Session) -> list[Cap]:
    """Return the spending caps: this month's total, this month's for the person, and the session's."""
    month = f"{datetime.now(UTC):%Y-%m}"
    caps = (
        (f"all:{month}", settings.budget.total),
        (f"person:{session.owner}:{month}", settings.budget.person),
        (session_account(session.id), settings.budget.session),
    )
    return [Cap(account, round(dollars * _MICRODOLLARS)) for account, dollars in caps if dollars]


def build_budget(settings: Callable[[], Settings], store: Store, session: Session, request: OpenRequest) -> Budget:
    """Return the budget of a session, with the caps of its goals and of its ancestors.

    The caps are those of the ``settings`` in force at each model call.
    """
    sessions = (session.id, *(request.delegated_scope.ancestors if request.delegated_scope else ()))

    def caps(tx: Transaction) -> tuple[Cap, ...]:
        return *build_caps(settings(), session), *(cap for one in sessions for cap in goal_caps(tx, one)), *request.caps

    return StoredBudget(store, caps)

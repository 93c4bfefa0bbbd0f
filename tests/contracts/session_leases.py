"""Session leases, claimed the way a worker claims them."""

from datetime import timedelta

from talaria.contracts.store import Transaction
from talaria.contracts.stores.queues import SessionClaim
from talaria.core.ids import SessionId
from talaria.runtime.workers import session_lease_name, take

CANDIDATES = 16


def claim_session_lease(
    tx: Transaction, duration: timedelta, session_id: SessionId | None = None
) -> SessionClaim | None:
    """Claim the lease of a session, or of the one that has waited longest; ``None`` if no lease is free."""
    for candidate in [session_id] if session_id else tx.inbox.list_unowned(CANDIDATES):
        lease = take(tx, session_lease_name(candidate), duration)
        if lease is not None:
            return SessionClaim(candidate, lease)
    return None

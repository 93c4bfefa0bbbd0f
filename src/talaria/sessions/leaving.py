"""Leave a conversation for good: what goes on in its background is to end, whoever sees to it."""

from talaria.contracts.processes import end_processes
from talaria.contracts.store import Transaction
from talaria.core.ids import SessionId
from talaria.sessions.delegation import ask_to_stop_all


def end_background(tx: Transaction, session_id: SessionId) -> None:
    """Let processes and what the agent has handed on end with a conversation, in the transaction that leaves it.

    Whoever watches them does so, now or after the next start; what a person asked for goes on.
    """
    end_processes(tx, session_id)
    ask_to_stop_all(tx, session_id)

"""What goes on in the background of a run when its turn is over, and what of it is reported already."""

from talaria.contracts.processes import list_processes
from talaria.contracts.store import Transaction
from talaria.core.ids import SessionId
from talaria.sessions.delegation import in_background
from talaria.sessions.waking import WAKE, fold_in, is_told_at


def goes_on_behind(tx: Transaction, session_id: SessionId) -> bool:
    """Put what was reported into the inbox, and tell whether there was any, or whether some is still to come."""
    if not is_told_at(tx, session_id, ""):
        return False  # it is told in the chat where the conversation is now
    if fold_in(tx, session_id) or any(item.kind == WAKE for item in tx.inbox.unsettled(session_id)):
        return True
    watched = (process for process in list_processes(tx, session_id) if process.notify or process.patterns)
    return any(process.is_alive for process in watched) or bool(in_background(tx, session_id))


def hold_reports(tx: Transaction, session_id: SessionId) -> None:
    """Let nobody else take what was reported to a conversation until this transaction is over."""
    tx.state.put(f"run-reports:{session_id}", "")

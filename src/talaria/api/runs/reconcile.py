"""End runs that another surface has processed: a terminal or a chat with the same session open."""

from talaria.api.runs.events import MessageCompleted, RunCompleted, RunEnd, RunEvent, RunFailed, RunStopped
from talaria.api.runs.run_store import end_run, is_over, read_result
from talaria.api.runs.turn_links import (
    close_link,
    has_background_work,
    is_message_stored,
    list_unreported,
    lock_reports,
    read_link,
)
from talaria.contracts.store import Transaction
from talaria.contracts.stores.responses import ApiRun
from talaria.contracts.stores.turns import Turn
from talaria.core.messages import Message, Text
from talaria.sessions.branches import list_exchanges

_SESSION_DELETED = "The session was deleted."
_MESSAGE_LOST = "The input didn't reach the session."


def reconcile_run(tx: Transaction, run: ApiRun) -> RunEnd | None:
    """Return and store the end of a run without remaining work; ``None`` while there is some."""
    if is_over(run):
        return None
    if tx.sessions.get(run.session_id) is None:
        return _end_run(tx, run, [], RunFailed(_SESSION_DELETED, "failed"))
    if _is_unfinished(tx, run):
        return None
    link = read_link(tx, run.session_id)
    if link is not None and link.run_id == run.id:
        if not link.record:  # its last turn is recorded; it waits for background work
            result = read_result(tx, run)
            run_end = RunCompleted(result.output if result else "")
            return _end_run(tx, run, [], run_end) if _has_no_work(tx, run) else None
        found = [turn for turn in tx.turns.find(run.session_id) if turn.id == link.turn_id]
        run_events = list_unreported(tx, link)
        close_link(tx, run.session_id)
        return _end_run(tx, run, run_events, _find_end(tx, run, found[-1] if found else None))
    if not is_message_stored(tx, run):
        return _end_run(tx, run, [], RunFailed(_MESSAGE_LOST, "failed"))
    run_events = [MessageCompleted(words) for words in _list_answers(tx, run)]
    return _end_run(tx, run, run_events, _find_end(tx, run, None))


def _is_unfinished(tx: Transaction, run: ApiRun) -> bool:
    is_queued = any(item.external_id == run.id for item in tx.inbox.unsettled(run.session_id))
    return is_queued or bool(tx.turns.find(run.session_id, running=True, limit=1))


def _end_run(tx: Transaction, run: ApiRun, run_events: list[RunEvent], end: RunEnd) -> RunEnd | None:
    return end if end_run(tx, run, end, run_events=run_events) else None


def _has_no_work(tx: Transaction, run: ApiRun) -> bool:
    """Return whether a run has no more work: checked twice, the second time under a lock."""
    if has_background_work(tx, run.session_id):
        return False
    lock_reports(tx, run.session_id)
    return not _is_unfinished(tx, run) and not has_background_work(tx, run.session_id)


def _find_end(tx: Transaction, run: ApiRun, turn: Turn | None) -> RunEnd:
    """Return the end according to the turn log, otherwise according to the transcript."""
    if turn is not None and turn.state == "stopped":
        return RunStopped()
    if turn is not None and turn.state in ("failed", "out_of_budget"):
        return RunFailed(turn.error, turn.state)
    answers = _list_answers(tx, run)
    return RunCompleted(answers[-1]) if answers else RunStopped()


def _list_answers(tx: Transaction, run: ApiRun) -> list[str]:
    """Return the agent's messages between the run's message and the next one of a person."""
    asked = tx.messages.with_platform_id(run.session_id, run.id)
    if asked is None:
        return []
    later = tx.messages.load(run.session_id, after=asked.seq)
    following = list_exchanges(later)
    until = following[0].seq if following else None
    messages_until = [one.message for one in later if until is None or one.seq < until]
    return [words for message in messages_until if message.role == "assistant" and (words := _get_text(message))]


def _get_text(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))

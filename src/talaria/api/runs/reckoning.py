"""End runs that somebody else has worked off: a terminal or a chat in which their conversation is open as well."""

from talaria.api.runs.behind import goes_on_behind, hold_reports
from talaria.api.runs.events import MessageCompleted, RunCompleted, RunEnd, RunEvent, RunFailed, RunStopped
from talaria.api.runs.keeping import end_run, is_over, result_of
from talaria.api.runs.marks import message_is_said, read_mark, seal, untold
from talaria.contracts.store import Transaction
from talaria.contracts.stores.responses import ApiRun
from talaria.contracts.stores.turns import Turn
from talaria.core.messages import Message, Text
from talaria.sessions.branching import exchanges

_GONE = "The conversation was deleted."
_UNSAID = "What was asked did not reach the conversation."


def settle_up(tx: Transaction, run: ApiRun) -> RunEnd | None:
    """Return the end of a run of which nothing is left to be worked on, and keep it; ``None`` while there is."""
    if is_over(run):
        return None
    if tx.sessions.get(run.session_id) is None:
        return _ended(tx, run, [], RunFailed(_GONE, "failed"))
    if _goes_on(tx, run):
        return None
    mark = read_mark(tx, run.session_id)
    if mark is not None and mark.run_id == run.id:
        if not mark.record:  # it was told to its end, and waits for what goes on in the background
            result = result_of(tx, run)
            over = RunCompleted(result.output if result else "")
            return _ended(tx, run, [], over) if _is_left_alone(tx, run) else None
        found = [turn for turn in tx.turns.find(run.session_id) if turn.id == mark.turn_id]
        told = untold(tx, mark)
        seal(tx, run.session_id)
        return _ended(tx, run, told, _end_of(tx, run, found[-1] if found else None))
    if not message_is_said(tx, run):
        return _ended(tx, run, [], RunFailed(_UNSAID, "failed"))
    told = [MessageCompleted(words) for words in _answers(tx, run)]
    return _ended(tx, run, told, _end_of(tx, run, None))


def _goes_on(tx: Transaction, run: ApiRun) -> bool:
    waits = any(item.external_id == run.id for item in tx.inbox.unsettled(run.session_id))
    return waits or bool(tx.turns.find(run.session_id, running=True, limit=1))


def _ended(tx: Transaction, run: ApiRun, told: list[RunEvent], end: RunEnd) -> RunEnd | None:
    return end if end_run(tx, run, end, told=told) else None


def _is_left_alone(tx: Transaction, run: ApiRun) -> bool:
    """Tell whether nothing more is to come for a run: looked at twice, the second time with nobody between."""
    if goes_on_behind(tx, run.session_id):
        return False
    hold_reports(tx, run.session_id)
    return not _goes_on(tx, run) and not goes_on_behind(tx, run.session_id)


def _end_of(tx: Transaction, run: ApiRun, turn: Turn | None) -> RunEnd:
    """Return the end as the log of the turn has it, else as the transcript looks."""
    if turn is not None and turn.state == "stopped":
        return RunStopped()
    if turn is not None and turn.state in ("failed", "out_of_budget"):
        return RunFailed(turn.error, turn.state)
    answers = _answers(tx, run)
    return RunCompleted(answers[-1]) if answers else RunStopped()


def _answers(tx: Transaction, run: ApiRun) -> list[str]:
    """Return what the agent said between the message of a run and the next one of a person."""
    asked = tx.messages.with_platform_id(run.session_id, run.id)
    if asked is None:
        return []
    behind = tx.messages.load(run.session_id, after=asked.seq)
    following = exchanges(behind)
    until = following[0].seq if following else None
    said = [one.message for one in behind if until is None or one.seq < until]
    return [words for message in said if message.role == "assistant" and (words := _words(message))]


def _words(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))

"""Links between turns and runs in the store, with the position up to which events were emitted."""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct, structs

from talaria.api.files import ApiFile, to_api_files
from talaria.api.runs.events import RunEvent, RunEventMapper, TurnResumed, TurnStarted, decode_event, make_stream_name
from talaria.api.runs.run_store import append_events
from talaria.contracts.background_processes import list_processes
from talaria.contracts.store import Transaction
from talaria.contracts.stores.responses import ApiRun
from talaria.contracts.stores.turns import Step
from talaria.contracts.values import SessionValue
from talaria.core.ids import SessionId, TurnId
from talaria.core.messages import Message, Text, ToolResult
from talaria.runtime.completions import WAKE, is_delivery_target, queue_reports
from talaria.runtime.delegation.task_store import list_background
from talaria.runtime.turn_log import MODEL, CallRecord

REPORT_LOCK = SessionValue("run_report_lock", bool)


def has_background_work(tx: Transaction, session_id: SessionId) -> bool:
    """Move pending reports to the inbox, and return whether there were any or more will come.

    The order of the checks matters: if another process ends the work after the first one, the second finds its report.
    """
    if not is_delivery_target(tx, session_id, ""):
        return False  # reported in the chat where the session is now
    watched = (process for process in list_processes(tx, session_id) if process.notify or process.patterns)
    is_running = any(process.is_alive for process in watched) or bool(list_background(tx, session_id))
    has_reports = bool(queue_reports(tx, session_id))
    return is_running or has_reports or any(item.kind == WAKE for item in tx.inbox.list_unsettled(session_id))


def lock_reports(tx: Transaction, session_id: SessionId) -> None:
    """Lock the reports of a session until this transaction ends."""
    REPORT_LOCK.write(tx, session_id, value=True)


_PAGE = 1000
_encode = msgspec.json.Encoder().encode
_decode_call = msgspec.json.Decoder(CallRecord).decode
_decode_result = msgspec.json.Decoder(ToolResult).decode


class TurnLink(Struct, frozen=True):
    """The link of a turn to a run.

    ``record`` is the current recorder: each process that resumes an interrupted turn has another, and after the end of
    the turn there is none. Events of the turn follow number ``first`` of the run's stream, those of this recorder
    follow ``base``.
    """

    turn_id: TurnId
    run_id: str
    record: str
    first: int
    base: int


class ResumePoint(Struct, frozen=True):
    """Point at which a turn was interrupted: after which of its steps and which message of the session."""

    turn_id: TurnId
    step: int = 2**62
    seq: int = 2**62


class StreamPosition(Struct, frozen=True):
    """Position of a recorder: after ``base`` in the stream of a run, and after the events already ``reported``."""

    run_id: str
    base: int
    reported: tuple[RunEvent, ...] = ()
    resumed: bool = False


TURN_LINK = SessionValue("run_turn", TurnLink)


def read_link(tx: Transaction, session_id: SessionId) -> TurnLink | None:
    """Return the link of the session's last turn that belongs to a run."""
    return TURN_LINK.get(tx, session_id)


def find_resume_point(tx: Transaction, session_id: SessionId) -> ResumePoint | None:
    """Return where the last turn of a session was interrupted, if it was, before it is resumed."""
    for turn in tx.turns.find(session_id, running=True, limit=1):
        steps, last = tx.turns.steps(turn.id), tx.messages.last(session_id, 1)
        return ResumePoint(turn.id, max((step.number for step in steps), default=0), last[-1].seq if last else 0)
    return None


def link_turn(
    tx: Transaction, session_id: SessionId, turn_id: TurnId, record: str, resume_point: ResumePoint | None
) -> StreamPosition | None:
    """Link a turn to its run, once per recorder, and return the position to write at; ``None`` without a run.

    ``resume_point`` is where it was interrupted before, if it was. Only the holder of the session's lease may call
    this.
    """
    run_id = _find_run_id(tx, session_id, turn_id)
    if not run_id:
        return None
    last = tx.events.append(make_stream_name(run_id), ())  # locks out other writers, which may have linked the turn
    link = read_link(tx, session_id)
    if link is not None and link.turn_id == turn_id:
        if not link.record:
            return None
        if link.record != record:
            reported = tuple(_iterate_reported(tx, run_id, link.first))
            return _resume_turn(tx, session_id, link, reported, record, resume_point or ResumePoint(turn_id, 0, 0))
        before = tuple(_iterate_reported(tx, run_id, link.first, link.base))
        return StreamPosition(run_id, link.base, before, resumed=bool(before))
    tx.runs.move(run_id, "running")
    fresh = TurnLink(turn_id, run_id, record, last, last)
    if resume_point is not None and resume_point.turn_id == turn_id:  # before any of its text was written
        return _resume_turn(tx, session_id, fresh, (), record, resume_point)
    _write_link(tx, session_id, fresh)
    return StreamPosition(run_id, last)


def close_link(tx: Transaction, session_id: SessionId) -> None:
    """Close the link of an ended turn, so that nothing more is written for it."""
    link = read_link(tx, session_id)
    if link is not None:
        _write_link(tx, session_id, structs.replace(link, record=""))


def list_unreported(tx: Transaction, link: TurnLink) -> list[RunEvent]:
    """Return finished steps in the turn log for which no events were written."""
    run = tx.runs.get(link.run_id)
    if run is None:
        return []
    mapper = RunEventMapper()
    mapper.recall(_iterate_reported(tx, link.run_id, link.first))
    return [*_iterate_unreported(tx, run.session_id, ResumePoint(link.turn_id), mapper), *mapper.restart()]


def list_files(tx: Transaction, turn_id: TurnId) -> tuple[ApiFile, ...]:
    """Return the files that the tools of a turn have sent."""
    results = [step.result for step in tx.turns.steps(turn_id) if step.kind != MODEL]
    sent = [_decode_result(result).files for result in results if result is not None and '"files"' in result]
    return tuple(file for files in sent for file in to_api_files(files))


def is_message_stored(tx: Transaction, run: ApiRun) -> bool:
    """Return whether the message of a run is already part of its session."""
    return tx.messages.with_platform_id(run.session_id, run.id) is not None


def _resume_turn(
    tx: Transaction,
    session_id: SessionId,
    link: TurnLink,
    reported: tuple[RunEvent, ...],
    record: str,
    resume_point: ResumePoint,
) -> StreamPosition:
    """Write events for unreported steps of an interrupted turn, and its resumption."""
    mapper = RunEventMapper()
    mapper.recall(reported)
    begun = [] if reported else [TurnStarted(link.turn_id)]
    unreported = _iterate_unreported(tx, session_id, resume_point, mapper)
    more = [*begun, *unreported, *mapper.restart(), TurnResumed(link.turn_id)]
    base = append_events(tx, link.run_id, session_id, more)
    tx.runs.move(link.run_id, "running")
    _write_link(tx, session_id, TurnLink(link.turn_id, link.run_id, record, link.first, base))
    return StreamPosition(link.run_id, base, (*reported, *more), resumed=True)


def _iterate_unreported(
    tx: Transaction, session_id: SessionId, resume_point: ResumePoint, mapper: RunEventMapper
) -> Iterator[RunEvent]:
    """Yield events for the steps in the turn log, up to the interruption, that were not written."""
    steps = [step for step in tx.turns.steps(resume_point.turn_id) if step.number <= resume_point.step]
    texts = iter(_list_texts(tx, session_id, sum(step.kind == MODEL for step in steps), resume_point.seq))
    known, messages = mapper.messages, 0
    for step in steps:
        if step.kind != MODEL:
            yield from _iterate_unreported_call(step, mapper)
        elif text := next(texts, ""):
            messages += 1
            if messages > known:
                yield from mapper.complete_message(text)


def _iterate_unreported_call(step: Step, mapper: RunEventMapper) -> Iterator[RunEvent]:
    record = _decode_call(step.request)
    call = record.call
    yield from mapper.start_call(call.id, call.name, call.arguments, record.summary)
    if step.result is not None and step.ended_at is not None:
        result = _decode_result(step.result)
        seconds = (step.ended_at - step.started_at).total_seconds()
        yield from mapper.complete_call(result, seconds)


def _list_texts(tx: Transaction, session_id: SessionId, count: int, last_seq: int) -> Sequence[str]:
    """Return the agent's text in its last messages up to one, oldest first; empty for mere tool calls."""
    reach = 4 * count + 8
    while True:
        stored = tx.messages.last(session_id, reach)
        replies = [one.message for one in stored if one.message.role == "assistant" and one.seq <= last_seq]
        if len(replies) >= count or len(stored) < reach:
            break
        reach *= 4
    return [_get_text(message) for message in (replies[-count:] if count else [])]


def _get_text(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Text))


def _find_run_id(tx: Transaction, session_id: SessionId, turn_id: TurnId) -> str:
    """Return the run of a turn: already linked, with its message, or waiting for background work; empty if none."""
    link = read_link(tx, session_id)
    if link is not None and link.turn_id == turn_id:
        return link.run_id
    open_runs = [run for run in tx.runs.open() if run.session_id == session_id]
    for run in open_runs:
        if run.state == "queued" and is_message_stored(tx, run):
            return run.id
    return link.run_id if link is not None and any(run.id == link.run_id for run in open_runs) else ""


def _iterate_reported(tx: Transaction, run_id: str, after: int, last_seq: int = 2**62) -> Iterator[RunEvent]:
    while (
        page := tx.events.after(make_stream_name(run_id), after, min(_PAGE, last_seq - after))
        if after < last_seq
        else ()
    ):
        yield from map(decode_event, page)
        after = page[-1].seq


def _write_link(tx: Transaction, session_id: SessionId, link: TurnLink) -> None:
    TURN_LINK.write(tx, session_id, link)

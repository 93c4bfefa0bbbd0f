"""Runs in the store and on the wire: start and end them, read their state, exchange questions with their server."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct, structs

from talaria.api.files import ApiFile
from talaria.api.front_door import ApiCaller
from talaria.api.input_items import Input, Metadata
from talaria.api.runs.events import (
    ApprovalRequested,
    RunCompleted,
    RunEnd,
    RunEvent,
    RunFailed,
    RunQuestion,
    RunQuestionAsked,
    RunQuestionClosed,
    RunQueued,
    RunStopped,
    RunWaiting,
    encode_event,
    make_stream_name,
)
from talaria.api.turns.session_pool import SOURCE, ApiOrigin, require_session, write_origin
from talaria.contracts.store import Transaction
from talaria.contracts.stores.responses import ApiRun, ApiRunState
from talaria.contracts.stores.sessions import NewSession
from talaria.contracts.values import SessionValue
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import Message, Usage, api_sender
from talaria.http.errors import make_conflict, make_not_found
from talaria.runtime.turns import MIRROR, make_arrival

RUNS_TOPIC = "runs"  # the topic that is notified when a run is created
RunKind = Literal["run", "response"]
END_STATES = ("completed", "failed", "stopped")
_SOURCE = "run"
RUN_QUESTION: SessionValue[RunQuestion] = SessionValue("run_question", RunQuestion)  # by question
RUN_ANSWER = SessionValue("run_answer", str)  # by question
RUN_STOP = SessionValue("run_stop", bool)  # by run
_encode = msgspec.json.Encoder().encode
_STATES: dict[str, ApiRunState] = {
    "run.completed": "completed",
    "run.failed": "failed",
    "run.stopped": "stopped",
    "run.waiting": "waiting",
}


class RunRequest(Struct, frozen=True, kw_only=True):
    """A run to start.

    With a ``session_id`` it continues that session, after the work in progress there; otherwise it starts one, with
    ``instructions`` and the items before the last one of ``input`` as its history.
    """

    input: Input
    session_id: Annotated[str, Meta(description="The session to continue.")] = ""
    instructions: Annotated[str, Meta(description="Extra instructions for the agent.")] = ""
    model: Annotated[str, Meta(description="A different model, as `provider:model`.")] = ""
    metadata: Metadata = {}


class RunProblem(Struct, frozen=True):
    """The error of a failed run."""

    code: str
    message: str


class Run(Struct, frozen=True, kw_only=True):
    """A run; ``output`` is its answer once it is over, ``questions`` are those waiting for an answer.

    ``files`` are those that the agent has sent, once a turn is over.
    """

    id: str
    session_id: str
    status: ApiRunState
    created_at: int
    updated_at: int
    object: Literal["run"] = "run"
    output: str | None = None
    error: RunProblem | None = None
    usage: Usage | None = None
    questions: tuple[RunQuestion, ...] = ()
    files: tuple[ApiFile, ...] = ()
    metadata: Metadata = {}


class EventsQuery(Struct, frozen=True):
    """Start of following a run: after this number."""

    after: Annotated[int, Meta(ge=0, le=2**62)] = 0


class RunDecision(Struct, frozen=True):
    """The answer to a question of a run.

    For an approval, ``decision`` is the answer and ``reason`` tells the agent why it was denied; for a question, use
    ``answer``.
    """

    id: str
    decision: Literal["approve", "approve_session", "approve_always", "deny"] | None = None
    answer: str | None = None
    reason: str = ""


class RunOptions(Struct, frozen=True, kw_only=True):
    """The stored options of a run; ``response`` is the initial response that it produces, if any."""

    kind: RunKind = "run"
    model: str = ""
    metadata: Metadata = {}
    response: str = ""
    thoughts: bool = False


class RunStart(Struct, frozen=True, kw_only=True):
    """A run to start.

    With a ``session_id`` it continues that session, after ``history``; otherwise it starts one with ``new_id``, with
    ``instructions`` in addition to the agent's own.
    """

    message: Message
    order: RunOptions = RunOptions()
    session_id: str = ""
    new_id: SessionId | None = None
    instructions: str = ""
    history: tuple[Message, ...] = ()


class RunResult(Struct, frozen=True):
    """The result of a run."""

    output: str = ""
    code: str = ""
    usage: Usage = Usage()
    files: tuple[ApiFile, ...] = ()


_decode_order = msgspec.json.Decoder(RunOptions).decode
RUN_RESULT = SessionValue("run_result", RunResult)  # by run


def new_run_id() -> str:
    """Return an id for a new run."""
    return f"run_{new_id()}"


def begin_run(tx: Transaction, run_id: str, start: RunStart, caller: ApiCaller) -> ApiRun:
    """Store a run and add its message to the inbox of its session; raises a `Problem` if there is none."""
    if start.session_id:
        session_id = require_session(tx, start.session_id, caller).id
        _check_same_kind(tx, session_id, start.order.kind)
    else:
        session_id = _create_session(tx, start, caller)
    run = tx.runs.create(ApiRun(id=run_id, session_id=session_id, request=_encode(start.order).decode()))
    if start.session_id:
        queue_history(tx, session_id, run_id, start.history)
    message = structs.replace(start.message, platform_message_id=run_id)
    tx.inbox.add(make_arrival(session_id, _SOURCE, run_id, message, sender=api_sender(caller.name)))
    append_events(tx, run_id, session_id, [RunQueued(session_id)])
    tx.notify(RUNS_TOPIC)
    return run


def queue_history(tx: Transaction, session_id: SessionId, name: str, history: Sequence[Message]) -> None:
    """Queue messages for a session's history, before its next turn and after a running one."""
    for number, message in enumerate(history):
        tx.inbox.add(make_arrival(session_id, SOURCE, f"{name}:{number}", message, kind=MIRROR))


def find_run(tx: Transaction, run_id: str, caller: ApiCaller, kind: str = "run") -> ApiRun:
    """Return a run of a session that the caller may see, or raise a `Problem`."""
    run = tx.runs.get(run_id)
    if run is None or read_options(run).kind != kind:
        raise make_not_found(f"There is no {kind} `{run_id[:64]}`.", code=f"{kind}_not_found")
    require_session(tx, run.session_id, caller)
    return run


def read_options(run: ApiRun) -> RunOptions:
    """Return the options of a run."""
    return _decode_order(run.request)


def to_run(tx: Transaction, run: ApiRun) -> Run:
    """Return a run for its client."""
    result = read_result(tx, run)
    return Run(
        id=run.id,
        session_id=run.session_id,
        status=run.state,
        created_at=_to_seconds(run.created_at),
        updated_at=_to_seconds(run.updated_at),
        output=result.output if result and run.state == "completed" else None,
        error=RunProblem(result.code if result else "failed", run.error) if run.state == "failed" else None,
        usage=result.usage if result else None,
        questions=tuple(list_open_questions(tx, run.session_id)) if run.state == "waiting" else (),
        files=result.files if result else (),
        metadata=read_options(run).metadata,
    )


def end_run(
    tx: Transaction,
    run: ApiRun,
    last: RunEnd | RunWaiting,
    usage: Usage | None = None,
    run_events: Sequence[RunEvent] = (),
    files: tuple[ApiFile, ...] = (),
) -> bool:
    """Record the end of a run, or of its turn, after its remaining ``run_events`` and with its ``files``.

    ``False`` if it had already ended.
    """
    error = last.error if isinstance(last, RunFailed) else ""
    if not tx.runs.move(run.id, _STATES[str(last.__struct_config__.tag)], error):
        return False
    append_events(tx, run.id, run.session_id, [*run_events, last])
    before = read_result(tx, run) or RunResult()
    text = last.text if isinstance(last, RunCompleted | RunWaiting) else ""
    code = last.code if isinstance(last, RunFailed) else ""
    result = RunResult(text, code, _add_usage(before.usage, usage or Usage()), before.files + files)
    RUN_RESULT.write(tx, run.session_id, result, run.id)
    if not isinstance(last, RunWaiting):
        clear_stop_request(tx, run.session_id, run.id)
    return True


def stop_run(tx: Transaction, run: ApiRun) -> bool:
    """End a run whose turn hasn't started, or request the stop of its turn; ``False`` if it is over."""
    if run.state in END_STATES:
        return False
    waiting = [
        item.id
        for item in tx.inbox.list_unsettled(run.session_id)
        if _is_pending_message(item.external_id, item.state, run)
    ]
    idle = not tx.turns.find(run.session_id, running=True, limit=1)
    if waiting or (run.state == "waiting" and idle):
        tx.inbox.settle(waiting)
        end_run(tx, run, RunStopped())
    else:
        request_stop(tx, run.session_id, run.id)
    return True


def is_over(run: ApiRun | None) -> bool:
    """Return whether a run will have no more events."""
    return run is None or run.state in END_STATES


def read_result(tx: Transaction, run: ApiRun) -> RunResult | None:
    """Return the result of a run so far."""
    return RUN_RESULT.get(tx, run.session_id, run.id)


class RunCommands(Struct, frozen=True):
    """Commands of clients for the runs of one session: runs to stop, and answers by question."""

    stop: frozenset[str] = frozenset()
    answers: dict[str, str] = {}


def make_control_topic(session_id: SessionId) -> str:
    """Return the topic that is notified when a client answers a question or stops a run."""
    return f"run-orders:{session_id}"


def append_events(tx: Transaction, run_id: str, session_id: SessionId, run_events: Sequence[RunEvent]) -> int:
    """Append events to the stream of a run, record its open questions, and return the last number."""
    for event in run_events:
        match event:
            case ApprovalRequested() | RunQuestionAsked():
                RUN_QUESTION.write(tx, session_id, event, event.id)
            case RunQuestionClosed(number):
                RUN_QUESTION.delete(tx, session_id, number)
                RUN_ANSWER.delete(tx, session_id, number)
            case _:
                pass
    tx.notify(make_stream_name(run_id))
    return tx.events.append(make_stream_name(run_id), [encode_event(event) for event in run_events])


def list_open_questions(tx: Transaction, session_id: SessionId) -> list[RunQuestion]:
    """Return the open questions of a session's run."""
    return list(RUN_QUESTION.items(tx, session_id).values())


def request_answer(tx: Transaction, session_id: SessionId, question_id: str, answer: str) -> RunQuestion | None:
    """Record the answer to an open question and return it; ``None`` if it isn't open or already answered."""
    question = RUN_QUESTION.get(tx, session_id, question_id)
    if question is None or not RUN_ANSWER.replace(tx, session_id, answer, version=0, item=question_id):
        return None
    tx.notify(make_control_topic(session_id))
    return question


def request_stop(tx: Transaction, session_id: SessionId, run_id: str) -> None:
    """Request the worker of a run to stop its turn."""
    RUN_STOP.write(tx, session_id, value=True, item=run_id)
    tx.notify(make_control_topic(session_id))


def read_commands(tx: Transaction, session_id: SessionId) -> RunCommands:
    """Return the commands that are not carried out yet."""
    return RunCommands(frozenset(RUN_STOP.items(tx, session_id)), RUN_ANSWER.items(tx, session_id))


def clear_stop_request(tx: Transaction, session_id: SessionId, run_id: str) -> None:
    """Delete the stop request of an ended run."""
    RUN_STOP.delete(tx, session_id, run_id)


def _check_same_kind(tx: Transaction, session_id: SessionId, kind: RunKind) -> None:
    """Allow only one kind of run per session at a time: kinds differ in who answers questions and gets reports."""
    if any(run.session_id == session_id and read_options(run).kind != kind for run in tx.runs.open()):
        raise make_conflict("This session is already busy with something else. Wait for it, or stop it.", code="busy")


def _is_pending_message(external_id: str, state: str, run: ApiRun) -> bool:
    return external_id == run.id and state == "waiting"


def _create_session(tx: Transaction, start: RunStart, caller: ApiCaller) -> SessionId:
    session = tx.sessions.create(NewSession(id=start.new_id, source=SOURCE, owner=caller.owner))
    write_origin(tx, session.id, ApiOrigin(caller.name, start.instructions))
    if start.history:
        tx.messages.append(session.id, start.history)
    return session.id


def _to_seconds(at: datetime | None) -> int:
    return int((at or datetime.now(UTC)).timestamp())


def _add_usage(one: Usage, other: Usage) -> Usage:
    return Usage(**{name: getattr(one, name) + getattr(other, name) for name in Usage.__struct_fields__})

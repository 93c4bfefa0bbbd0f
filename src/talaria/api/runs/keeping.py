"""Runs in the store: begun, shown and stopped, in transactions that may run on any server."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal

import msgspec
from msgspec import Struct, structs

from talaria.api.conversations import SOURCE, Origin, entered, keep_origin
from talaria.api.keys import Caller
from talaria.api.problems import conflict, missing
from talaria.api.responses.wire import Metadata
from talaria.api.runs.asked import forget_order, open_questions, order_stop, tell
from talaria.api.runs.events import RunCompleted, RunEnd, RunEvent, RunFailed, RunQueued, RunStopped, RunWaiting
from talaria.api.runs.wire import Run, RunProblem
from talaria.contracts.store import Transaction
from talaria.contracts.stores.responses import ApiRun, ApiRunState
from talaria.contracts.stores.sessions import NewSession
from talaria.core.ids import SessionId, new_id
from talaria.core.messages import Message, Usage
from talaria.core.senders import api_sender
from talaria.sessions.lane import MIRROR, arrival

RUNS = "runs"  # the topic of hints that one was begun
RunKind = Literal["run", "response"]
ENDED = ("completed", "failed", "stopped")
_SOURCE = "run"


class Order(Struct, frozen=True, kw_only=True):
    """What is kept of how a run was asked for; a ``response`` is the beginning of one that it is to become."""

    kind: RunKind = "run"
    model: str = ""
    metadata: Metadata = {}
    response: str = ""
    thoughts: bool = False


class Start(Struct, frozen=True, kw_only=True):
    """A run to begin.

    With a ``session_id`` it goes on with that conversation, behind ``history``; else it begins one under ``new_id``,
    with ``instructions`` beside the agent's own.
    """

    message: Message
    order: Order = Order()
    session_id: str = ""
    new_id: SessionId | None = None
    instructions: str = ""
    history: tuple[Message, ...] = ()


class Result(Struct, frozen=True):
    """What came out of a run."""

    output: str = ""
    code: str = ""
    usage: Usage = Usage()


_encode = msgspec.json.Encoder().encode
_decode_order = msgspec.json.Decoder(Order).decode
_decode_result = msgspec.json.Decoder(Result).decode


def new_run_id() -> str:
    """Return an id for a new run."""
    return f"run_{new_id()}"


def begin_run(tx: Transaction, run_id: str, start: Start, caller: Caller) -> ApiRun:
    """Keep a run and put what it is about into the inbox of its conversation; raises a `Problem` if there is none."""
    if start.session_id:
        session_id = entered(tx, start.session_id, caller).id
        _check_company(tx, session_id, start.order.kind)
    else:
        session_id = _new_session(tx, start, caller)
    run = tx.runs.create(ApiRun(id=run_id, session_id=session_id, request=_encode(start.order).decode()))
    if start.session_id:
        put_before(tx, session_id, run_id, start.history)
    message = structs.replace(start.message, platform_message_id=run_id)
    tx.inbox.add(arrival(session_id, _SOURCE, run_id, message, sender=api_sender(caller.name)))
    tell(tx, run_id, session_id, [RunQueued(session_id)])
    return run


def put_before(tx: Transaction, session_id: SessionId, name: str, history: Sequence[Message]) -> None:
    """Let messages stand in a conversation before its next turn, behind the one that may be running."""
    for number, message in enumerate(history):
        tx.inbox.add(arrival(session_id, SOURCE, f"{name}:{number}", message, kind=MIRROR))


def find_run(tx: Transaction, run_id: str, caller: Caller, kind: str = "run") -> ApiRun:
    """Return a run of a conversation that the caller may see, or raise a `Problem`."""
    run = tx.runs.get(run_id)
    if run is None or order_of(run).kind != kind:
        raise missing(f"There is no {kind} `{run_id[:64]}`.", code=f"{kind}_not_found")
    entered(tx, run.session_id, caller)
    return run


def order_of(run: ApiRun) -> Order:
    """Return how a run was asked for."""
    return _decode_order(run.request)


def shown(tx: Transaction, run: ApiRun) -> Run:
    """Return a run as its client sees it."""
    result = result_of(tx, run)
    return Run(
        id=run.id,
        session_id=run.session_id,
        status=run.state,
        created_at=_seconds(run.created_at),
        updated_at=_seconds(run.updated_at),
        output=result.output if result and run.state == "completed" else None,
        error=RunProblem(result.code if result else "failed", run.error) if run.state == "failed" else None,
        usage=result.usage if result else None,
        questions=tuple(open_questions(tx, run.session_id)) if run.state == "waiting" else (),
        metadata=order_of(run).metadata,
    )


def end_run(
    tx: Transaction, run: ApiRun, last: RunEnd | RunWaiting, usage: Usage | None = None, told: Sequence[RunEvent] = ()
) -> bool:
    """Tell the end of a run, or of its turn, behind what is ``told`` yet; ``False`` for one that had ended already."""
    error = last.error if isinstance(last, RunFailed) else ""
    if not tx.runs.move(run.id, _STATES[str(last.__struct_config__.tag)], error):
        return False
    tell(tx, run.id, run.session_id, [*told, last])
    before = result_of(tx, run)
    spent = _sum(before.usage if before else Usage(), usage or Usage())
    text = last.text if isinstance(last, RunCompleted | RunWaiting) else ""
    result = Result(text, last.code if isinstance(last, RunFailed) else "", spent)
    tx.state.put(_result_key(run), _encode(result).decode())
    if not isinstance(last, RunWaiting):
        forget_order(tx, run.session_id, run.id)
    return True


def stop_run(tx: Transaction, run: ApiRun) -> bool:
    """End a run whose turn has not begun; of one that has, let the turn be stopped; ``False`` for one that is over."""
    if run.state in ENDED:
        return False
    waiting = [item.id for item in tx.inbox.unsettled(run.session_id) if _is_waiting(item.external_id, item.state, run)]
    idle = not tx.turns.find(run.session_id, running=True, limit=1)
    if waiting or (run.state == "waiting" and idle):
        tx.inbox.settle(waiting)
        end_run(tx, run, RunStopped())
    else:
        order_stop(tx, run.session_id, run.id)
    return True


def is_over(run: ApiRun | None) -> bool:
    """Tell whether nothing more is to be heard of a run."""
    return run is None or run.state in ENDED


_STATES: dict[str, ApiRunState] = {
    "run.completed": "completed",
    "run.failed": "failed",
    "run.stopped": "stopped",
    "run.waiting": "waiting",
}


def _check_company(tx: Transaction, session_id: SessionId, kind: RunKind) -> None:
    """Let only runs of one kind wait in a conversation: they differ in who can be asked and who hears of what ends."""
    if any(run.session_id == session_id and order_of(run).kind != kind for run in tx.runs.open()):
        raise conflict("This conversation is being worked on in another way. Wait for it, or stop it.", code="busy")


def _is_waiting(external_id: str, state: str, run: ApiRun) -> bool:
    return external_id == run.id and state == "waiting"


def _new_session(tx: Transaction, start: Start, caller: Caller) -> SessionId:
    session = tx.sessions.create(NewSession(id=start.new_id, source=SOURCE, owner=caller.owner))
    keep_origin(tx, session.id, Origin(caller.name, start.instructions))
    if start.history:
        tx.messages.append(session.id, start.history)
    return session.id


def result_of(tx: Transaction, run: ApiRun) -> Result | None:
    """Return what has come out of a run so far."""
    entry = tx.state.get(_result_key(run))
    return _decode_result(entry.value) if entry else None


def _result_key(run: ApiRun) -> str:
    return f"run-result:{run.id}:{run.session_id}"


def _seconds(at: datetime | None) -> int:
    return int((at or datetime.now(UTC)).timestamp())


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(**{name: getattr(one, name) + getattr(other, name) for name in Usage.__struct_fields__})

"""Questions and commands of runs, in the store, so that any server can handle them."""

from collections.abc import Sequence

from msgspec import Struct

from talaria.api.runs.events import (
    ApprovalRequested,
    RunEvent,
    RunQuestionAsked,
    RunQuestionClosed,
    encode_event,
    make_stream_name,
)
from talaria.contracts.store import Transaction
from talaria.contracts.values import SessionValue
from talaria.core.ids import SessionId

Question = ApprovalRequested | RunQuestionAsked

RUN_QUESTION: SessionValue[Question] = SessionValue("run_question", Question)  # by question
RUN_ANSWER = SessionValue("run_answer", str)  # by question
RUN_STOP = SessionValue("run_stop", bool)  # by run


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


def list_open_questions(tx: Transaction, session_id: SessionId) -> list[Question]:
    """Return the open questions of a session's run."""
    return list(RUN_QUESTION.items(tx, session_id).values())


def request_answer(tx: Transaction, session_id: SessionId, question_id: str, answer: str) -> Question | None:
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

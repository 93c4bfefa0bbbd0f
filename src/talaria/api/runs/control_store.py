"""Questions and commands of runs, in the store, so that any server can handle them."""

from collections.abc import Sequence

import msgspec
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
from talaria.core.ids import SessionId

Question = ApprovalRequested | RunQuestionAsked

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Question).decode


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
                tx.state.put(_make_question_key(session_id, event.id), _encode(event).decode())
            case RunQuestionClosed(number):
                tx.state.delete(_make_question_key(session_id, number))
                tx.state.delete(_make_command_key(session_id, "answer", number))
            case _:
                pass
    tx.notify(make_stream_name(run_id))
    return tx.events.append(make_stream_name(run_id), [encode_event(event) for event in run_events])


def list_open_questions(tx: Transaction, session_id: SessionId) -> list[Question]:
    """Return the open questions of a session's run."""
    return [_decode(entry.value) for entry in tx.state.with_prefix(f"run-question:{session_id}:")]


def request_answer(tx: Transaction, session_id: SessionId, question_id: str, answer: str) -> Question | None:
    """Record the answer to an open question and return it; ``None`` if it isn't open or already answered."""
    entry = tx.state.get(_make_question_key(session_id, question_id))
    key = _make_command_key(session_id, "answer", question_id)
    if entry is None or not tx.state.replace(key, answer, version=0):
        return None
    tx.notify(make_control_topic(session_id))
    question: Question = _decode(entry.value)
    return question


def request_stop(tx: Transaction, session_id: SessionId, run_id: str) -> None:
    """Request the worker of a run to stop its turn."""
    tx.state.put(_make_command_key(session_id, "stop", run_id), "")
    tx.notify(make_control_topic(session_id))


def read_commands(tx: Transaction, session_id: SessionId) -> RunCommands:
    """Return the commands that are not carried out yet."""
    stop, answers = set(), {}
    for entry in tx.state.with_prefix(f"run-order:{session_id}:"):
        _, _, kind, number, _ = entry.key.split(":")
        if kind == "stop":
            stop.add(number)
        else:
            answers[number] = entry.value
    return RunCommands(frozenset(stop), answers)


def clear_stop_request(tx: Transaction, session_id: SessionId, run_id: str) -> None:
    """Delete the stop request of an ended run."""
    tx.state.delete(_make_command_key(session_id, "stop", run_id))


# The session comes last in keys: such values are deleted with it.
def _make_question_key(session_id: SessionId, question_id: str) -> str:
    return f"run-question:{session_id}:{question_id}:{session_id}"


def _make_command_key(session_id: SessionId, kind: str, number: str) -> str:
    return f"run-order:{session_id}:{kind}:{number}:{session_id}"

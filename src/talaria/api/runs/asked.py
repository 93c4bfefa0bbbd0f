"""What runs ask and what clients tell them, in the store: so it does not matter which server hears of it."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from talaria.api.runs.events import (
    ApprovalRequested,
    QuestionAsked,
    QuestionClosed,
    RunEvent,
    packed,
    stream_of,
)
from talaria.contracts.store import Transaction
from talaria.core.ids import SessionId

Question = ApprovalRequested | QuestionAsked

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Question).decode


class Orders(Struct, frozen=True):
    """What clients want of the runs of one conversation: which to stop, and answers by question."""

    stop: frozenset[str] = frozenset()
    answers: dict[str, str] = {}


def orders_for(session_id: SessionId) -> str:
    """Return the topic of hints that a client wants something."""
    return f"run-orders:{session_id}"


def tell(tx: Transaction, run_id: str, session_id: SessionId, told: Sequence[RunEvent]) -> int:
    """Add events to the stream of a run, keep which questions are open, and return the number of the last event."""
    for event in told:
        match event:
            case ApprovalRequested() | QuestionAsked():
                tx.state.put(_question_key(session_id, event.id), _encode(event).decode())
            case QuestionClosed(number):
                tx.state.delete(_question_key(session_id, number))
                tx.state.delete(_order_key(session_id, "answer", number))
            case _:
                pass
    return tx.events.append(stream_of(run_id), [packed(event) for event in told])


def open_questions(tx: Transaction, session_id: SessionId) -> list[Question]:
    """Return what the run of a conversation waits for somebody to answer."""
    return [_decode(entry.value) for entry in tx.state.with_prefix(f"run-question:{session_id}:")]


def order_answer(tx: Transaction, session_id: SessionId, question_id: str, answer: str) -> Question | None:
    """Let an open question be answered, and return it; ``None`` where it is not open, or answered already."""
    entry = tx.state.get(_question_key(session_id, question_id))
    key = _order_key(session_id, "answer", question_id)
    if entry is None or not tx.state.replace(key, answer, version=0):
        return None
    question: Question = _decode(entry.value)
    return question


def order_stop(tx: Transaction, session_id: SessionId, run_id: str) -> None:
    """Let the turn of a run be stopped by whoever works on it."""
    tx.state.put(_order_key(session_id, "stop", run_id), "")


def read_orders(tx: Transaction, session_id: SessionId) -> Orders:
    """Return what is wanted and not carried out yet."""
    stop, answers = set(), {}
    for entry in tx.state.with_prefix(f"run-order:{session_id}:"):
        _, _, kind, number, _ = entry.key.split(":")
        if kind == "stop":
            stop.add(number)
        else:
            answers[number] = entry.value
    return Orders(frozenset(stop), answers)


def forget_order(tx: Transaction, session_id: SessionId, run_id: str) -> None:
    """Forget that a run was to be stopped: it is over."""
    tx.state.delete(_order_key(session_id, "stop", run_id))


# The session comes last in keys: what of the state ends so is deleted with it.
def _question_key(session_id: SessionId, question_id: str) -> str:
    return f"run-question:{session_id}:{question_id}:{session_id}"


def _order_key(session_id: SessionId, kind: str, number: str) -> str:
    return f"run-order:{session_id}:{kind}:{number}:{session_id}"

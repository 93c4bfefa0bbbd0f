"""What a client hears of a run: a typed union, as it is kept in the stream of the run and as it is sent."""

import msgspec
from msgspec import Struct

from talaria.contracts.stores.events import Event
from talaria.core.messages import Usage


class RunQueued(Struct, frozen=True, tag="run.queued"):
    """The run is kept and waits for its turn."""

    session_id: str


class TurnStarted(Struct, frozen=True, tag="turn.started"):
    """A turn begins: the one for what was asked, or one because something in the background has ended."""

    turn_id: str


class TurnResumed(Struct, frozen=True, tag="turn.resumed"):
    """A turn that was cut off goes on; text since the last `message.completed` is void, and comes anew."""

    turn_id: str


class TextDelta(Struct, frozen=True, tag="text.delta"):
    """More of what the agent says."""

    text: str


class ReasoningDelta(Struct, frozen=True, tag="reasoning.delta"):
    """More of what the model thinks aloud."""

    text: str


class MessageCompleted(Struct, frozen=True, tag="message.completed"):
    """All that the agent said in one go; it counts, whatever the pieces before it were."""

    text: str


class ToolStarted(Struct, frozen=True, tag="tool.started"):
    """The agent uses one of its tools; ``arguments`` is JSON text, ``summary`` says in a line what it does."""

    call_id: str
    name: str
    arguments: str
    summary: str


class ToolProgress(Struct, frozen=True, tag="tool.progress"):
    """A running tool has something to show already."""

    call_id: str
    text: str


class ToolCompleted(Struct, frozen=True, tag="tool.completed"):
    """A tool is done; the end of a long ``output`` is left out."""

    call_id: str
    name: str
    output: str
    failed: bool
    seconds: float


class ApprovalRequested(Struct, frozen=True, tag="approval.requested"):
    """Somebody must say whether this may happen: `POST /v1/runs/{id}/approval` with this ``id``."""

    id: str
    tool: str
    summary: str
    reason: str


class QuestionAsked(Struct, frozen=True, tag="question.asked"):
    """The agent asks something: `POST /v1/runs/{id}/approval` with this ``id`` and an ``answer``."""

    id: str
    question: str
    choices: tuple[str, ...]


class QuestionClosed(Struct, frozen=True, tag="question.closed"):
    """An approval or a question is not open any more: answered, given up, or asked anew under another id."""

    id: str


class InputJoined(Struct, frozen=True, tag="input.joined"):
    """Words that were written during the turn are now part of it."""

    text: str


class Notice(Struct, frozen=True, tag="notice"):
    """Something to know, though the turn goes on: a wait, another model, a compacted past."""

    text: str


class ModelUsed(Struct, frozen=True, tag="model.used"):
    """A model call is over; ``context`` is how many tokens the conversation takes of ``context_limit``."""

    model: str
    usage: Usage
    context: int
    context_limit: int


class RunWaiting(Struct, frozen=True, tag="run.waiting"):
    """The turn is over; what it started in the background is not, and begins another turn here when it ends."""

    text: str


class RunCompleted(Struct, frozen=True, tag="run.completed"):
    """The run is over, with this as its answer."""

    text: str


class RunFailed(Struct, frozen=True, tag="run.failed"):
    """The run is over without an answer; ``code`` is `failed`, or `out_of_budget` where a limit ended it."""

    error: str
    code: str


class RunStopped(Struct, frozen=True, tag="run.stopped"):
    """Somebody stopped the run; what was done so far is kept."""


RunEnd = RunCompleted | RunFailed | RunStopped
RunEvent = (
    RunQueued
    | TurnStarted
    | TurnResumed
    | TextDelta
    | ReasoningDelta
    | MessageCompleted
    | ToolStarted
    | ToolProgress
    | ToolCompleted
    | ApprovalRequested
    | QuestionAsked
    | QuestionClosed
    | InputJoined
    | Notice
    | ModelUsed
    | RunWaiting
    | RunEnd
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RunEvent).decode


def stream_of(run_id: str) -> str:
    """Return the name of the stream in which the events of a run are kept; also the topic of hints about it."""
    return f"run:{run_id}"


def packed(event: RunEvent) -> tuple[str, str]:
    """Return an event as kind and payload, as a stream keeps it."""
    kind = event.__struct_config__.tag
    return str(kind), _encode(event).decode()


def unpacked(kept: Event) -> RunEvent:
    """Return an event as it was told."""
    event: RunEvent = _decode(kept.payload)
    return event

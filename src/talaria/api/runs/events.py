"""Run events: a typed union, as stored in the stream of the run and as sent."""

import msgspec
from msgspec import Struct

from talaria.contracts.stores.events import StreamEvent
from talaria.core.messages import Usage


class RunQueued(Struct, frozen=True, tag="run.queued"):
    """The run is stored and queued."""

    session_id: str


class TurnStarted(Struct, frozen=True, tag="turn.started"):
    """A turn started: for the input, or because background work has ended."""

    turn_id: str


class TurnResumed(Struct, frozen=True, tag="turn.resumed"):
    """An interrupted turn resumed; text since the last `message.completed` is void and is sent again."""

    turn_id: str


class TextDelta(Struct, frozen=True, tag="text.delta"):
    """More text by the agent."""

    text: str


class ReasoningDelta(Struct, frozen=True, tag="reasoning.delta"):
    """More of the model's reasoning."""

    text: str


class MessageCompleted(Struct, frozen=True, tag="message.completed"):
    """A complete message by the agent; it supersedes its deltas."""

    text: str


class ToolStarted(Struct, frozen=True, tag="tool.started"):
    """A tool call started; ``arguments`` is JSON text, ``summary`` describes it in one line."""

    call_id: str
    name: str
    arguments: str
    summary: str


class ToolProgress(Struct, frozen=True, tag="tool.progress"):
    """Output of a running tool."""

    call_id: str
    text: str


class ToolCompleted(Struct, frozen=True, tag="tool.completed"):
    """A tool call ended; a long ``output`` is truncated."""

    call_id: str
    name: str
    output: str
    failed: bool
    seconds: float


class ApprovalRequested(Struct, frozen=True, tag="approval.requested"):
    """A call needs approval: `POST /v1/runs/{id}/approval` with this ``id``."""

    id: str
    tool: str
    summary: str
    reason: str


class RunQuestionAsked(Struct, frozen=True, tag="question.asked"):
    """The agent asks a question: `POST /v1/runs/{id}/approval` with this ``id`` and an ``answer``."""

    id: str
    question: str
    choices: tuple[str, ...]


class RunQuestionClosed(Struct, frozen=True, tag="question.closed"):
    """An approval or a question is closed: answered, expired, or asked again with another id."""

    id: str


class InputJoined(Struct, frozen=True, tag="input.joined"):
    """A message written during the turn has joined it."""

    text: str


class Notice(Struct, frozen=True, tag="notice"):
    """A notice while the turn continues: a wait, another model, a summarised history."""

    text: str


class ModelUsed(Struct, frozen=True, tag="model.used"):
    """A model call ended; the session takes ``context`` tokens of ``context_limit``."""

    model: str
    usage: Usage
    context: int
    context_limit: int


class RunWaiting(Struct, frozen=True, tag="run.waiting"):
    """The turn ended; its background work continues, and starts another turn when it ends."""

    text: str


class RunCompleted(Struct, frozen=True, tag="run.completed"):
    """The run ended with this answer."""

    text: str


class RunFailed(Struct, frozen=True, tag="run.failed"):
    """The run ended without an answer; ``code`` is `failed`, or `out_of_budget` if it reached a limit."""

    error: str
    code: str


class RunStopped(Struct, frozen=True, tag="run.stopped"):
    """The run was stopped; completed steps are stored."""


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
    | RunQuestionAsked
    | RunQuestionClosed
    | InputJoined
    | Notice
    | ModelUsed
    | RunWaiting
    | RunEnd
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(RunEvent).decode


def make_stream_name(run_id: str) -> str:
    """Return the name of the stream in which the events of a run are kept; also its topic."""
    return f"run:{run_id}"


def encode_event(event: RunEvent) -> tuple[str, str]:
    """Return an event as kind and payload for a stream."""
    kind = event.__struct_config__.tag
    return str(kind), _encode(event).decode()


def decode_event(stored: StreamEvent) -> RunEvent:
    """Return the event from kind and payload."""
    event: RunEvent = _decode(stored.payload)
    return event

"""Run events: a typed union, as stored and as sent, and their mapping from turn events."""

from collections.abc import Iterable
from typing import assert_never

import msgspec
from msgspec import Struct

from talaria.api.files import ApiFile, to_api_files
from talaria.contracts.stores.queues import StreamEvent
from talaria.contracts.stores.responses import ApiRunState
from talaria.core import events
from talaria.core.events import TurnEnd, TurnEvent
from talaria.core.messages import ToolResult, Usage

INTERRUPTED = "Interrupted; the outcome is unknown."
_MAX_OUTPUT = 10_000


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
    """A tool call ended; a long ``output`` is truncated, ``files`` are for the person."""

    call_id: str
    name: str
    output: str
    failed: bool
    seconds: float
    files: tuple[ApiFile, ...] = ()


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


RunQuestion = ApprovalRequested | RunQuestionAsked
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


class RunEventMapper:
    """Record of what was emitted of a turn, so that each event appears once and in order."""

    def __init__(self) -> None:
        self.messages = 0
        self._text = ""
        self._started_calls: dict[str, str] = {}
        self._open_calls: dict[str, str] = {}
        self._questions: list[str] = []

    def copy(self) -> "RunEventMapper":
        """Return an independent copy."""
        copy = RunEventMapper()
        copy.messages, copy._text = self.messages, self._text
        copy._started_calls, copy._open_calls, copy._questions = (
            dict(self._started_calls),
            dict(self._open_calls),
            list(self._questions),
        )
        return copy

    def recall(self, reported: Iterable[RunEvent]) -> None:
        """Record events that another process has emitted for this turn."""
        for event in reported:
            match event:
                case MessageCompleted():
                    self.messages += 1
                case ToolStarted():
                    self._started_calls[event.call_id] = self._open_calls[event.call_id] = event.name
                case ToolCompleted():
                    self._open_calls.pop(event.call_id, None)
                case ApprovalRequested() | RunQuestionAsked():
                    self._questions.append(event.id)
                case RunQuestionClosed():
                    self._questions.remove(event.id)
                case _:
                    pass

    def map_event(self, event: TurnEvent) -> list[RunEvent]:
        """Return the run events for a turn event."""
        match event:
            case events.TextAdded(text):
                self._text += text
                return [*self._close_calls(), TextDelta(text)]
            case events.ReasoningAdded(text):
                return [*self._close_calls(), ReasoningDelta(text)]
            case events.TurnAnswered() | events.TurnStopped() | events.TurnOutOfBudget() | events.TurnFailed():
                return [*self._close_questions(), *self._close_calls(), *self.complete_message()]
            case events.ModelCalled(model, usage, context, context_limit):
                return [*self._close_calls(), ModelUsed(model, usage, context, context_limit)]
            case events.TurnBegan(turn_id):
                return [TurnStarted(turn_id)]
            case events.Noticed(text):
                return [Notice(text)]
            case events.PersonJoined(text):
                return [*self.complete_message(), InputJoined(text)]
            case events.ApprovalAsked(number, tool, summary, reason):
                self._questions.append(number)
                return [*self.complete_message(), ApprovalRequested(number, tool, summary, reason)]
            case events.QuestionAsked(number, question, choices):
                self._questions.append(number)
                return [*self.complete_message(), RunQuestionAsked(number, question, choices)]
            case _:
                return self._map_tool_event(event)

    @property
    def state(self) -> ApiRunState:
        """Return the state of the run: it waits while a question is open."""
        return "waiting" if self._questions else "running"

    def close_question(self, question_id: str) -> list[RunEvent]:
        """Return the events for a closed question."""
        if question_id not in self._questions:
            return []
        self._questions.remove(question_id)
        return [RunQuestionClosed(question_id)]

    def complete_message(self, text: str = "") -> list[RunEvent]:
        """Return the event for a completed message, if there is one, from its deltas or its full text."""
        whole, self._text = text or self._text, ""
        if not whole:
            return []
        self.messages += 1
        return [MessageCompleted(whole)]

    def restart(self) -> list[RunEvent]:
        """Return the events for a resumed turn: incomplete text is generated again."""
        self._text = ""
        return self._close_questions()

    def start_call(self, call_id: str, name: str, arguments: str, summary: str) -> list[RunEvent]:
        """Return the event for a tool call, unless it was emitted: after a crash a call may be repeated."""
        if call_id in self._started_calls:
            return []
        self._started_calls[call_id] = self._open_calls[call_id] = name
        return [ToolStarted(call_id, name, arguments, summary)]

    def complete_call(self, result: ToolResult, seconds: float) -> list[RunEvent]:
        """Return the event for a tool result, unless it was emitted."""
        name = self._open_calls.pop(result.call_id, None)
        if name is None:
            return []
        files = to_api_files(result.files) if result.files else ()
        return [ToolCompleted(result.call_id, name, _truncate(result.text), result.failed, seconds, files)]

    def _map_tool_event(
        self,
        event: events.ToolCalled
        | events.ToolProgressed
        | events.ToolAnswered
        | events.ToolRefused
        | events.StoreBlocked,
    ) -> list[RunEvent]:
        match event:
            case events.ToolRefused() | events.StoreBlocked():
                return []
            case events.ToolCalled(call, summary):
                return [*self.complete_message(), *self.start_call(call.id, call.name, call.arguments, summary)]
            case events.ToolProgressed(call_id, text):
                return [ToolProgress(call_id, text)]
            case events.ToolAnswered(result, _, seconds):
                return self.complete_call(result, seconds)
            case _:
                assert_never(event)

    def _close_calls(self) -> list[RunEvent]:
        """Return the ends of abandoned calls: the model continues only when all are answered."""
        interrupted = [
            ToolCompleted(call_id, name, INTERRUPTED, failed=True, seconds=0.0)
            for call_id, name in self._open_calls.items()
        ]
        self._open_calls.clear()
        return list(interrupted)

    def _close_questions(self) -> list[RunEvent]:
        closed, self._questions = self._questions, []
        return [RunQuestionClosed(number) for number in closed]


def to_run_end(end: TurnEnd) -> RunEnd:
    """Return the end of a run whose last turn ended so."""
    match end:
        case events.TurnAnswered(text):
            return RunCompleted(text)
        case events.TurnStopped():
            return RunStopped()
        case events.TurnOutOfBudget(_, text):
            return RunFailed(text, "out_of_budget")
        case events.TurnFailed(text):
            return RunFailed(text, "failed")
        case _:
            assert_never(end)


def _truncate(text: str) -> str:
    return text if len(text) <= _MAX_OUTPUT else f"{text[:_MAX_OUTPUT]}…"

"""Translate the events of turns into those of a run, or of a response: pure, but for what was said so far."""

from collections.abc import Iterable
from typing import assert_never

from talaria.api.runs.events import (
    ApprovalRequested,
    InputJoined,
    MessageCompleted,
    ModelUsed,
    Notice,
    QuestionAsked,
    QuestionClosed,
    ReasoningDelta,
    RunCompleted,
    RunEnd,
    RunEvent,
    RunFailed,
    RunStopped,
    TextDelta,
    ToolCompleted,
    ToolProgress,
    ToolStarted,
    TurnStarted,
)
from talaria.contracts.stores.responses import ApiRunState
from talaria.core import events
from talaria.core.events import TurnEnd, TurnEvent

CUT_OFF = "Cut off: whether it was done is not known."
_MOST_OUTPUT = 10_000


class Telling:
    """What was told of one turn so far, so that each thing is told once, and in an order that makes sense."""

    def __init__(self) -> None:
        self.messages = 0
        self._text = ""
        self._begun: dict[str, str] = {}
        self._open: dict[str, str] = {}
        self._questions: list[str] = []

    def copied(self) -> "Telling":
        """Return one that goes on from here by itself."""
        copy = Telling()
        copy.messages, copy._text = self.messages, self._text
        copy._begun, copy._open, copy._questions = dict(self._begun), dict(self._open), list(self._questions)
        return copy

    def recall(self, told: Iterable[RunEvent]) -> None:
        """Take note of what somebody else has told of this turn before."""
        for event in told:
            match event:
                case MessageCompleted():
                    self.messages += 1
                case ToolStarted():
                    self._begun[event.call_id] = self._open[event.call_id] = event.name
                case ToolCompleted():
                    self._open.pop(event.call_id, None)
                case ApprovalRequested() | QuestionAsked():
                    self._questions.append(event.id)
                case QuestionClosed():
                    self._questions.remove(event.id)
                case _:
                    pass

    def tell(self, event: TurnEvent) -> list[RunEvent]:
        """Return what there is to tell when this happens."""
        match event:
            case events.TextAdded(text):
                self._text += text
                return [*self._calls_over(), TextDelta(text)]
            case events.ReasoningAdded(text):
                return [*self._calls_over(), ReasoningDelta(text)]
            case events.TurnAnswered() | events.TurnStopped() | events.TurnOutOfBudget() | events.TurnFailed():
                return [*self._questions_over(), *self._calls_over(), *self.said()]
            case events.ModelCalled(model, usage, context, context_limit):
                return [*self._calls_over(), ModelUsed(model, usage, context, context_limit)]
            case events.TurnBegan(turn_id):
                return [TurnStarted(turn_id)]
            case events.Noticed(text):
                return [Notice(text)]
            case events.PersonJoined(text):
                return [*self.said(), InputJoined(text)]
            case events.ApprovalAsked(number, tool, summary, reason):
                self._questions.append(number)
                return [*self.said(), ApprovalRequested(number, tool, summary, reason)]
            case events.QuestionAsked(number, question, choices):
                self._questions.append(number)
                return [*self.said(), QuestionAsked(number, question, choices)]
            case _:
                return self._tell_of_tool(event)

    @property
    def state(self) -> ApiRunState:
        """What a run does whose turn has come so far: it waits while a question is open."""
        return "waiting" if self._questions else "running"

    def closed(self, question_id: str) -> list[RunEvent]:
        """Return what there is to tell when a question is open no more."""
        if question_id not in self._questions:
            return []
        self._questions.remove(question_id)
        return [QuestionClosed(question_id)]

    def said(self, text: str = "") -> list[RunEvent]:
        """Return that a message is complete, if there is one: what was added up, or all of it where that is known."""
        whole, self._text = text or self._text, ""
        if not whole:
            return []
        self.messages += 1
        return [MessageCompleted(whole)]

    def anew(self) -> list[RunEvent]:
        """Return what there is to tell when the turn goes on: the text that was not completed is asked for again."""
        self._text = ""
        return self._questions_over()

    def started(self, call_id: str, name: str, arguments: str, summary: str) -> list[RunEvent]:
        """Return that a tool was called, unless that was told before: a call that may be repeated is, after a crash."""
        if call_id in self._begun:
            return []
        self._begun[call_id] = self._open[call_id] = name
        return [ToolStarted(call_id, name, arguments, summary)]

    def completed(self, call_id: str, text: str, *, failed: bool, seconds: float) -> list[RunEvent]:
        """Return that a tool has answered, unless that was told before."""
        name = self._open.pop(call_id, None)
        return [] if name is None else [ToolCompleted(call_id, name, _bounded(text), failed, seconds)]

    def _tell_of_tool(
        self, event: events.ToolCalled | events.ToolProgressed | events.ToolAnswered | events.ToolRefused
    ) -> list[RunEvent]:
        match event:
            case events.ToolRefused():
                return []
            case events.ToolCalled(call, summary):
                return [*self.said(), *self.started(call.id, call.name, call.arguments, summary)]
            case events.ToolProgressed(call_id, text):
                return [ToolProgress(call_id, text)]
            case events.ToolAnswered(result, _, seconds):
                return self.completed(result.call_id, result.text, failed=result.failed, seconds=seconds)
            case _:
                assert_never(event)

    def _calls_over(self) -> list[RunEvent]:
        """Return the end of calls of which nobody will tell any more: the model speaks only when all are answered."""
        cut = [ToolCompleted(call_id, name, CUT_OFF, failed=True, seconds=0.0) for call_id, name in self._open.items()]
        self._open.clear()
        return list(cut)

    def _questions_over(self) -> list[RunEvent]:
        closed, self._questions = self._questions, []
        return [QuestionClosed(number) for number in closed]


def ending_of(end: TurnEnd) -> RunEnd:
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


def _bounded(text: str) -> str:
    return text if len(text) <= _MOST_OUTPUT else f"{text[:_MOST_OUTPUT]}…"

"""What hooks hear of the turns of a conversation, taken from the events that its front door is shown."""

import time
from collections.abc import Callable
from typing import assert_never

from talaria.contracts.hooks import AGENT_END, AGENT_START, AGENT_STEP, Emit, Fact, Facts, session_facts
from talaria.core.events import (
    ModelCalled,
    ToolAnswered,
    TurnAnswered,
    TurnBegan,
    TurnEnd,
    TurnEvent,
    TurnFailed,
    TurnOutOfBudget,
    TurnStopped,
)
from talaria.core.session_context import SessionContext, current_context


class Hearing:
    """Stands between a turn and its front door; hands everything on first."""

    def __init__(self, emit: Emit, fire: Callable[[str, Facts], None]) -> None:
        self._emit = emit
        self._fire = fire
        self._began = time.monotonic()
        self._steps = 0

    def event(self, event: TurnEvent) -> None:
        """Hand an event on, and tell hooks if it is one for them."""
        self._emit(event)
        match event:
            case TurnBegan():
                self._began, self._steps = time.monotonic(), 0
                self._tell(AGENT_START, {"text": event.said})
            case ModelCalled() | ToolAnswered():
                self._steps += 1
                self._tell(AGENT_STEP, {"step": self._steps, **_step(event)})
            case TurnAnswered() | TurnStopped() | TurnOutOfBudget() | TurnFailed():
                outcome, text = _outcome(event)
                seconds = round(time.monotonic() - self._began, 3)
                self._tell(AGENT_END, {"outcome": outcome, "text": text, "seconds": seconds, "steps": self._steps})

    def _tell(self, name: str, facts: dict[str, Fact]) -> None:
        self._fire(name, {**session_facts(current_context() or SessionContext()), **facts})


def _step(event: ModelCalled | ToolAnswered) -> dict[str, Fact]:
    match event:
        case ModelCalled(model=model, usage=usage):
            return {
                "kind": "model",
                "model": model,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
            }
        case ToolAnswered(result=result, name=name, seconds=seconds):
            return {
                "kind": "tool",
                "tool": name,
                "failed": result.failed,
                "text": result.text,
                "seconds": round(seconds, 3),
            }


def _outcome(end: TurnEnd) -> tuple[str, str]:
    match end:
        case TurnAnswered(text):
            return "answered", text
        case TurnStopped():
            return "stopped", ""
        case TurnOutOfBudget(text=text):
            return "out_of_budget", text
        case TurnFailed(text):
            return "failed", text
        case _:
            assert_never(end)

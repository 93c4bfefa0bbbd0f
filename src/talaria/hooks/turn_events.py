"""Hook events of the turns of a session, made from its turn events."""

import time
from collections.abc import Callable
from typing import assert_never

from talaria.contracts.hooks import AGENT_END, AGENT_START, AGENT_STEP, Fact, Facts, session_facts
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


class TurnHookEvents:
    """Subscriber of one open session that fires `AGENT_START`, `AGENT_STEP` and `AGENT_END`."""

    def __init__(self, fire: Callable[[str, Facts], None]) -> None:
        self._fire = fire
        self._started_at = time.monotonic()
        self._steps = 0

    def on_event(self, event: TurnEvent) -> None:
        """Fire the hook event for a turn event, if there is one."""
        match event:
            case TurnBegan():
                self._started_at, self._steps = time.monotonic(), 0
                self._fire_event(AGENT_START, {"text": event.said})
            case ModelCalled() | ToolAnswered():
                self._steps += 1
                self._fire_event(AGENT_STEP, {"step": self._steps, **_describe_step(event)})
            case TurnAnswered() | TurnStopped() | TurnOutOfBudget() | TurnFailed():
                outcome, text = _describe_outcome(event)
                seconds = round(time.monotonic() - self._started_at, 3)
                self._fire_event(
                    AGENT_END, {"outcome": outcome, "text": text, "seconds": seconds, "steps": self._steps}
                )

    def _fire_event(self, name: str, facts: dict[str, Fact]) -> None:
        self._fire(name, {**session_facts(current_context() or SessionContext()), **facts})


def _describe_step(event: ModelCalled | ToolAnswered) -> dict[str, Fact]:
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


def _describe_outcome(end: TurnEnd) -> tuple[str, str]:
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

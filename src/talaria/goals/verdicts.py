"""Read what a judge answers: JSON, alone or in a fence, with prose around it, exact or nearly so."""

import math
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from msgspec import Struct

from talaria.goals.goal import JudgeFailure, Verdict

LONGEST_WAIT = 86_400
_USUAL_WAIT = 60
_LONGEST_ANSWER = 20_000
_MOST_TRIES = 200
_REASON_LENGTH = 500
_YES = {"true", "yes", "y", "1", "done", "complete", "completed", "achieved", "reached", "finished"}
_NO = {"continue", "false", "no", "n", "0", "not done", "not yet", "incomplete", "not_done"}
_OTHERS: Mapping[str, Verdict] = {"wait": "wait", "stop": "stop"}


class Opinion(Struct, frozen=True, kw_only=True):
    """What somebody thinks of a turn; ``exit_code`` is the evidence, ``wait_…`` says how long to wait.

    ``failure`` says that the judge did not judge, and why.
    """

    verdict: Verdict
    reason: str
    wait_seconds: float = 0
    wait_pid: int = 0
    exit_code: int | None = None
    failure: JudgeFailure = ""


def read_verdict(answer: str) -> Opinion | None:
    """Return what a judge thinks, or ``None`` where that cannot be read."""
    found: Opinion | None = None
    for value in _objects(answer[:_LONGEST_ANSWER]):
        found = _opinion(value) or found
    return found


def _objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the outermost JSON objects in a text, in order."""
    # Conversations without a goal, which are most, do not wait for this.
    decoder = import_module("json").JSONDecoder()
    start = text.find("{")
    for _ in range(_MOST_TRIES):
        if start < 0:
            return
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            yield value
        start = text.find("{", end)


def _opinion(value: Mapping[str, Any]) -> Opinion | None:
    verdict = _verdict(value)
    if verdict is None:
        return None
    raw = value.get("reason")
    reason = " ".join(raw.split())[:_REASON_LENGTH] if isinstance(raw, str) else ""
    if verdict != "wait":
        return Opinion(verdict=verdict, reason=reason or "The judge gave no reason.")
    pid = round(_number(value.get("wait_pid"), 2**31))
    seconds = _number(value.get("wait_seconds"), LONGEST_WAIT) or (LONGEST_WAIT if pid else _USUAL_WAIT)
    return Opinion(verdict="wait", reason=reason or "Something has to end first.", wait_seconds=seconds, wait_pid=pid)


def _verdict(value: Mapping[str, Any]) -> Verdict | None:
    word = _word(value.get("verdict")) or _word(value.get("done"))
    if word in _YES:
        return "done"
    if word in _OTHERS:
        return _OTHERS[word]
    return "continue" if word in _NO or (word and "verdict" not in value) else None


def _word(value: object) -> str:
    if isinstance(value, bool | int | float):
        return "true" if value else "false"
    return " ".join(value.lower().split()).strip(" .!") if isinstance(value, str) else ""


def _number(value: object, most: float) -> float:
    """Return a number above zero, also where it is written as text, or zero."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else 0.0
    except (ValueError, OverflowError):
        return 0.0
    return min(number, most) if math.isfinite(number) and number > 0 else 0.0

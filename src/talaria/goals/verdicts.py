"""Parser for the judge's answers: JSON, bare, fenced or within prose, with lenient values."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from talaria.core.messages import Usage
from talaria.goals.goal import JudgeFailure, Verdict

LONGEST_WAIT = 86_400
_DEFAULT_WAIT = 60
_MAX_ANSWER = 20_000
_MAX_TRIES = 200
_REASON_LENGTH = 500
_DONE_WORDS = {"true", "yes", "y", "1", "done", "complete", "completed", "achieved", "reached", "finished"}
_CONTINUE_WORDS = {"continue", "false", "no", "n", "0", "not done", "not yet", "incomplete", "not_done"}
_OTHER_VERDICTS: Mapping[str, Verdict] = {"wait": "wait", "stop": "stop"}


class Opinion(Struct, frozen=True, kw_only=True):
    """Opinion of the judge about a turn.

    ``exit_code`` is that of the verify command; ``wait_seconds`` and ``wait_pid`` limit a wait. ``failure`` is set if
    there was no verdict, with the cause. ``usage`` is that of the judging model.
    """

    verdict: Verdict
    reason: str
    wait_seconds: float = 0
    wait_pid: int = 0
    exit_code: int | None = None
    failure: JudgeFailure = ""
    usage: Usage = Usage()


def read_verdict(answer: str) -> Opinion | None:
    """Return the last opinion in an answer, or ``None`` if none can be parsed."""
    found: Opinion | None = None
    for value in _iterate_objects(answer[:_MAX_ANSWER]):
        found = _parse_opinion(value) or found
    return found


def _iterate_objects(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the outermost JSON objects in a text, in order."""
    from json import JSONDecoder  # noqa: PLC0415 (loaded when there is a goal; most sessions have none)

    decoder = JSONDecoder()
    start = text.find("{")
    for _ in range(_MAX_TRIES):
        if start < 0:
            return
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = start + 1
        else:
            yield value
        start = text.find("{", end)


def _parse_opinion(value: Mapping[str, Any]) -> Opinion | None:
    verdict = _parse_verdict(value)
    if verdict is None:
        return None
    raw = value.get("reason")
    reason = " ".join(raw.split())[:_REASON_LENGTH] if isinstance(raw, str) else ""
    if verdict != "wait":
        return Opinion(verdict=verdict, reason=reason or "The judge gave no reason.")
    pid = round(_parse_number(value.get("wait_pid"), 2**31))
    seconds = _parse_number(value.get("wait_seconds"), LONGEST_WAIT) or (LONGEST_WAIT if pid else _DEFAULT_WAIT)
    return Opinion(
        verdict="wait", reason=reason or "Something else has to finish first.", wait_seconds=seconds, wait_pid=pid
    )


def _parse_verdict(value: Mapping[str, Any]) -> Verdict | None:
    word = _normalize_word(value.get("verdict")) or _normalize_word(value.get("done"))
    if word in _DONE_WORDS:
        return "done"
    if word in _OTHER_VERDICTS:
        return _OTHER_VERDICTS[word]
    return "continue" if word in _CONTINUE_WORDS or (word and "verdict" not in value) else None


def _normalize_word(value: object) -> str:
    if isinstance(value, bool | int | float):
        return "true" if value else "false"
    return " ".join(value.lower().split()).strip(" .!") if isinstance(value, str) else ""


def _parse_number(value: object, most: float) -> float:
    """Parse a positive number, also from text, limited to ``most``; 0 if it is none."""
    try:
        number = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else 0.0
    except (ValueError, OverflowError):
        return 0.0
    return min(number, most) if math.isfinite(number) and number > 0 else 0.0

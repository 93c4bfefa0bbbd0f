"""Parsing of verdicts in the notations that models use."""

import pytest

from talaria.goals.goal import LONGEST_WAIT, read_verdict


@pytest.mark.parametrize(
    "answer",
    [
        '{"verdict": "done", "reason": "r"}',
        '```json\n{"verdict": "done", "reason": "r"}\n```',
        '```\n{"done": true, "reason": "r"}\n```',
        'Let me see. The goal {was} clear.\n{"done": true, "reason": "r"}',
        '{"done": true, "reason": "r"}\nThat is what I think {really}.',
        'First {"done": false, "reason": "no"}, but then again {"done": true, "reason": "r"}',
        *(f'{{"done": "{word}", "reason": "r"}}' for word in ("true", "yes", "done", "1", "Yes", " TRUE ")),
        '{"done": 1, "reason": "r"}',
        '{"verdict": "Done.", "reason": "r"}',
    ],
)
def test_done_verdict_is_read_in_every_notation(answer: str) -> None:
    opinion = read_verdict(answer)
    assert opinion is not None
    assert (opinion.verdict, opinion.reason) == ("done", "r")


@pytest.mark.parametrize(
    "answer",
    [
        '{"verdict": "continue", "reason": "r"}',
        '{"done": false, "reason": "r"}',
        *(f'{{"done": "{word}", "reason": "r"}}' for word in ("false", "no", "not yet", "0", "almost")),
        '{"done": 0, "reason": "r"}',
        '{"verdict": "not done", "reason": "r"}',
        '{"verdict": "continue", "done": "yes", "reason": "r"}',
    ],
)
def test_other_readable_verdicts_mean_continue(answer: str) -> None:
    opinion = read_verdict(answer)
    assert opinion is not None
    assert (opinion.verdict, opinion.reason) == ("continue", "r")


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "It is done.",
        "{",
        "{}",
        "[1, 2]",
        '{"verdict": "perhaps"}',
        '{"reason": "r"}',
        '{"done": null}',
        '{"done": ["yes"]}',
        "{" * 5_000,
        '{"a":' + "[" * 50_000,
        '{"verdict": "done"',
    ],
)
def test_unreadable_answer_is_no_verdict(answer: str) -> None:
    assert read_verdict(answer) is None


@pytest.mark.parametrize(
    ("fields", "seconds", "pid"),
    [
        ('"wait_seconds": 90', 90, 0),
        ('"wait_seconds": "90"', 90, 0),
        ('"wait_pid": 4242', LONGEST_WAIT, 4242),
        ('"wait_pid": "4242", "wait_seconds": 5', 5, 4242),
        ('"wait_seconds": 1e300', LONGEST_WAIT, 0),
        ('"wait_seconds": -5', 60, 0),
        ('"wait_seconds": NaN', 60, 0),
        ('"wait_seconds": true', 60, 0),
        ('"wait_seconds": "soon"', 60, 0),
        ('"reason": "none"', 60, 0),
    ],
)
def test_wait_is_limited_and_has_a_default(fields: str, seconds: float, pid: int) -> None:
    opinion = read_verdict(f'{{"verdict": "wait", {fields}}}')
    assert opinion is not None
    assert (opinion.verdict, opinion.wait_seconds, opinion.wait_pid) == ("wait", seconds, pid)


def test_missing_reason_is_reported_and_a_long_one_is_cut() -> None:
    bare = read_verdict('{"done": true}')
    long = read_verdict('{"done": true, "reason": "' + "so  " * 9_000 + '"}')
    assert bare is not None
    assert bare.reason == "The judge gave no reason."
    assert long is None or len(long.reason) <= 500

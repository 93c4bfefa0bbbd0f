"""What a judge writes is understood in every form that models are known for."""

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
def test_done_is_done_however_it_is_written(answer: str) -> None:
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
def test_everything_else_that_can_be_read_is_not_done(answer: str) -> None:
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
def test_what_cannot_be_read_is_no_verdict(answer: str) -> None:
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
def test_a_wait_has_an_end(fields: str, seconds: float, pid: int) -> None:
    opinion = read_verdict(f'{{"verdict": "wait", {fields}}}')
    assert opinion is not None
    assert (opinion.verdict, opinion.wait_seconds, opinion.wait_pid) == ("wait", seconds, pid)


def test_a_missing_reason_is_said_to_be_missing_and_a_long_one_is_cut() -> None:
    bare = read_verdict('{"done": true}')
    long = read_verdict('{"done": true, "reason": "' + "so  " * 9_000 + '"}')
    assert bare is not None
    assert bare.reason == "The judge gave no reason."
    assert long is None or len(long.reason) <= 500

"""A call that fails and fails is noticed: first with advice, then with an end."""

from talaria.agent.tool_dispatch import RepetitionGuard
from talaria.core.messages import ToolCall, ToolResult


def call(number: int, arguments: str = "{}", name: str = "look") -> ToolCall:
    return ToolCall(str(number), name, arguments)


def failure(number: int) -> ToolResult:
    return ToolResult(str(number), "no such file", failed=True)


def fail(repetition: RepetitionGuard, times: int, arguments: str = "{}", name: str = "look") -> list[str]:
    return [
        result.text
        for number in range(times)
        for result in repetition.watch([call(number, arguments, name)], [failure(number)])
    ]


def test_the_third_failure_of_the_same_call_comes_with_advice() -> None:
    first, second, third = fail(RepetitionGuard(), 3)
    assert first == second == "no such file"
    assert third.startswith("no such file\n\n")
    assert "failed 3 times" in third


def test_the_fifth_failure_is_the_end() -> None:
    repetition = RepetitionGuard()
    fail(repetition, 4)
    assert not repetition.is_hopeless
    fail(repetition, 1)
    assert repetition.is_hopeless


def test_a_success_in_between_clears_the_count() -> None:
    repetition = RepetitionGuard()
    fail(repetition, 4)
    repetition.watch([call(5)], [ToolResult("5", "there it is")])
    assert fail(repetition, 2) == ["no such file"] * 2
    assert not repetition.is_hopeless


def test_other_arguments_or_another_tool_are_another_call() -> None:
    repetition = RepetitionGuard()
    assert (
        fail(repetition, 2) + fail(repetition, 2, '{"a": 1}') + fail(repetition, 2, name="peek") == ["no such file"] * 6
    )


def test_calls_of_one_reply_count_each() -> None:
    repetition = RepetitionGuard()
    calls, results = [call(n) for n in range(5)], [failure(n) for n in range(5)]
    watched = repetition.watch(calls, results)
    assert [result.call_id for result in watched] == list("01234")
    assert repetition.is_hopeless


def test_what_succeeds_is_never_touched() -> None:
    results = [ToolResult(str(n), "fine") for n in range(9)]
    repetition = RepetitionGuard()
    assert [repetition.watch([call(n)], [results[n]])[0] for n in range(9)] == results
    assert not repetition.is_hopeless

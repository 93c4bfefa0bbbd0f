"""Repeated failures of the same tool call: first the model gets advice, then the turn ends."""

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


def test_third_failure_of_the_same_call_adds_advice() -> None:
    first, second, third = fail(RepetitionGuard(), 3)
    assert first == second == "no such file"
    assert third.startswith("no such file\n\n")
    assert "failed 3 times" in third


def test_fifth_failure_of_the_same_call_is_hopeless() -> None:
    repetition = RepetitionGuard()
    fail(repetition, 4)
    assert not repetition.is_hopeless
    fail(repetition, 1)
    assert repetition.is_hopeless


def test_success_in_between_resets_the_count() -> None:
    repetition = RepetitionGuard()
    fail(repetition, 4)
    repetition.watch([call(5)], [ToolResult("5", "there it is")])
    assert fail(repetition, 2) == ["no such file"] * 2
    assert not repetition.is_hopeless


def test_calls_with_other_arguments_or_tools_are_counted_separately() -> None:
    repetition = RepetitionGuard()
    assert (
        fail(repetition, 2) + fail(repetition, 2, '{"a": 1}') + fail(repetition, 2, name="peek") == ["no such file"] * 6
    )


def test_each_call_of_one_reply_is_counted() -> None:
    repetition = RepetitionGuard()
    calls, results = [call(n) for n in range(5)], [failure(n) for n in range(5)]
    watched = repetition.watch(calls, results)
    assert [result.call_id for result in watched] == list("01234")
    assert repetition.is_hopeless


def test_successful_results_are_not_changed() -> None:
    results = [ToolResult(str(n), "fine") for n in range(9)]
    repetition = RepetitionGuard()
    assert [repetition.watch([call(n)], [results[n]])[0] for n in range(9)] == results
    assert not repetition.is_hopeless

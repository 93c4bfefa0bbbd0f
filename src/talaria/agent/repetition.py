"""Notice a model that makes the same failing call over and over."""

from collections.abc import Sequence

from talaria.core.messages import ToolCall, ToolResult

_WARN_AT = 3
_END_AT = 5
_ADVICE = "\n\nThis very call has failed {count} times. Do something else, or say what stands in the way."


class Repetition:
    """Counts failures of the same call with the same arguments within a turn."""

    def __init__(self) -> None:
        self._failures: dict[tuple[str, str], int] = {}
        self.hopeless = False

    def watch(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> list[ToolResult]:
        """Return the results, with advice where a call keeps failing; afterwards ``hopeless`` may be true."""
        return [self._watched(call, result) for call, result in zip(calls, results, strict=True)]

    def _watched(self, call: ToolCall, result: ToolResult) -> ToolResult:
        key = (call.name, call.arguments)
        if not result.failed:
            self._failures.pop(key, None)
            return result
        count = self._failures[key] = self._failures.get(key, 0) + 1
        self.hopeless = self.hopeless or count >= _END_AT
        if count < _WARN_AT:
            return result
        return ToolResult(result.call_id, result.text + _ADVICE.format(count=count), failed=True)

"""Compact formats for durations, tokens, outcomes and costs of a trace."""

from datetime import datetime

from talaria.cli.terminal_text import format_cell
from talaria.contracts.stores.turns import TurnState
from talaria.core.formatting import format_money, pluralize
from talaria.core.messages import Usage
from talaria.observability.trace import PrefixBreak, ToolSpan, TurnTrace

_MINUTE, _HOUR = 60, 3600
_LONGEST_FAILURE = 200
_MOST_IN_THOUSANDS = 999_950


def format_duration(start: datetime, end: datetime) -> str:
    """Return the duration between two times."""
    return format_seconds((end - start).total_seconds())


def format_seconds(seconds: float) -> str:
    """Return seconds with two or three digits."""
    if seconds < 1:
        return f"{max(seconds, 0):.2f} s"
    if round(seconds, 1) < _MINUTE:
        return f"{seconds:.1f} s"
    rounded = round(seconds)
    if rounded < _HOUR:
        return f"{rounded // _MINUTE}m{rounded % _MINUTE:02}s"
    return f"{rounded // _HOUR}h{rounded % _HOUR // _MINUTE:02}m"


def format_tokens(tokens: int) -> str:
    """Return a number of tokens, in thousands or millions if large."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.1f}k" if tokens < _MOST_IN_THOUSANDS else f"{tokens / 1_000_000:.1f}M"


def format_turn_state(state: TurnState) -> str:
    """Return how a turn ended."""
    return state.replace("_", " ")


def format_tool_outcome(tool: ToolSpan) -> str:
    """Return the outcome of a tool call, with its message if it failed."""
    failure = format_cell(tool.failure[:_LONGEST_FAILURE])
    return f"{tool.state}: {failure}" if failure else tool.state


def format_usage_summary(usage: Usage) -> str:
    """Return tokens and cost on one line."""
    cached = f" ({format_tokens(usage.cache_read_tokens)} cached)" if usage.cache_read_tokens else ""
    tokens = (
        f"{format_tokens(usage.input_tokens)} in{cached}, {format_tokens(usage.output_tokens)} out"
        if usage.calls
        else ""
    )
    return " · ".join(filter(None, [tokens, format_money(usage.cost_microdollars)]))


def count_steps(*traces: TurnTrace) -> str:
    """Return the numbers of model calls and tool calls."""
    models = sum(1 for trace in traces for _ in trace.models())
    tools = sum(1 for trace in traces for _ in trace.tools())
    return f"{pluralize(models, 'model call')}, {pluralize(tools, 'tool')}"


def format_break_cost(prefix_break: PrefixBreak) -> str:
    """Return the cost of a prefix break, as far as known."""
    if prefix_break.turn is None:
        return "no model call since"
    if prefix_break.shared:
        return "included in the break before"
    cost = format_money(prefix_break.cost_microdollars)
    return f"{format_tokens(prefix_break.tokens)} tokens{f', about {cost}' if cost else ''}"

"""Figures of a trace in few characters: how long, how many, how it ended."""

from datetime import datetime

from talaria.cli.cells import cell
from talaria.cli.traces.breaks import Break
from talaria.contracts.stores.turns import TurnState
from talaria.core.messages import Usage
from talaria.core.wording import counted, money
from talaria.sessions.trace import ToolSpan, TurnTrace

_MINUTE, _HOUR = 60, 3600
_LONGEST_FAILURE = 200
_MOST_IN_THOUSANDS = 999_950


def duration(start: datetime, end: datetime) -> str:
    """Return the time between two moments."""
    return in_seconds((end - start).total_seconds())


def in_seconds(seconds: float) -> str:
    """Return a length of time to two or three digits."""
    if seconds < 1:
        return f"{max(seconds, 0):.2f} s"
    if round(seconds, 1) < _MINUTE:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _HOUR:
        return f"{whole // _MINUTE}m{whole % _MINUTE:02}s"
    return f"{whole // _HOUR}h{whole % _HOUR // _MINUTE:02}m"


def amount(tokens: int) -> str:
    """Return a number of tokens, in thousands or millions where it is large."""
    if tokens < 1000:
        return str(tokens)
    return f"{tokens / 1000:.1f}k" if tokens < _MOST_IN_THOUSANDS else f"{tokens / 1_000_000:.1f}M"


def ending(state: TurnState) -> str:
    """Return how a turn ended."""
    return state.replace("_", " ")


def outcome(tool: ToolSpan) -> str:
    """Return what became of a tool call, with the tool's own words where it failed."""
    failure = cell(tool.failure[:_LONGEST_FAILURE])
    return f"{tool.state}: {failure}" if failure else tool.state


def used(usage: Usage) -> str:
    """Return tokens and money in a line."""
    cached = f" ({amount(usage.cache_read_tokens)} cached)" if usage.cache_read_tokens else ""
    tokens = f"{amount(usage.input_tokens)} in{cached}, {amount(usage.output_tokens)} out" if usage.calls else ""
    return " · ".join(filter(None, [tokens, money(usage.cost_microdollars)]))


def steps_counted(*traces: TurnTrace) -> str:
    """Return how many model calls and tools there were."""
    models = sum(1 for trace in traces for _ in trace.models())
    tools = sum(1 for trace in traces for _ in trace.tools())
    return f"{counted(models, 'model call')}, {counted(tools, 'tool')}"


def price(broken: Break) -> str:
    """Return what a break cost, as far as that is known."""
    if broken.turn is None:
        return "no model call since"
    if broken.shared:
        return "paid with the break before"
    cost = money(broken.cost_microdollars)
    return f"{amount(broken.tokens)} tokens{f', about {cost}' if cost else ''}"

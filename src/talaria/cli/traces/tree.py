"""A trace as a tree: under each turn its model calls, under each of them the tools that it asked for."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, tzinfo

from msgspec import Struct

from talaria.cli.cells import cell, columns, cut, pad
from talaria.cli.terminal import Terminal
from talaria.cli.traces.breaks import Break
from talaria.cli.traces.reading import NumberedTurn, SessionTrace
from talaria.cli.traces.wording import amount, duration, ending, in_seconds, outcome, price, steps_counted
from talaria.contracts.stores.turns import TurnState
from talaria.core.messages import Usage
from talaria.core.wording import clock_time, counted, money
from talaria.sessions.trace import ModelSpan, Span, ToolSpan, ToolState

_HEADERS = ("TIME", "FIRST", "IN", "CACHED", "OUT", "COST")
_WIDTHS = (8, 7, 7, 7, 7, 9)
_NARROWEST_LABEL = 16
_TURN_COLORS: dict[TurnState, str] = {"answered": "green", "running": "cyan", "failed": "red"}
_TOOL_COLORS: dict[ToolState, str] = {"ok": "green", "running": "cyan", "failed": "red", "interrupted": "yellow"}


class Node(Struct, frozen=True, kw_only=True):
    """One line and what hangs below it; ``remark`` stands behind the time, in place of further figures.

    A line without figures may take the whole width.
    """

    label: str
    figures: tuple[str, ...] = ()
    remark: str = ""
    styles: tuple[str, ...] = ()
    remark_style: str = ""
    below: tuple["Node", ...] = ()


def print_tree(trace: SessionTrace, terminal: Terminal, zone: tzinfo | None) -> None:
    """Print the turns of a trace, and their totals."""
    if trace.earlier:
        more = trace.earlier + len(trace.turns)
        remark = f"… {counted(trace.earlier, 'earlier turn')}: --last {more} shows everything"
        terminal.line(terminal.styled(cut(remark, terminal.width), "dim"))
    roots = [turn_node(turn, zone) for turn in trace.turns]
    roots += [_break_node(broken) for broken in trace.breaks if broken.turn is None]
    if len(trace.turns) > 1:
        roots.append(_total(trace))
    lines = [line for root in roots for line in _flattened(root)]
    room = max(terminal.width - sum(_WIDTHS), _NARROWEST_LABEL)
    width = min(room, max((columns(branch + node.label) for branch, node in lines if node.figures), default=0))
    _print_line("TURN", Node(label="", figures=_HEADERS, styles=("dim",)), width, terminal)
    for branch, node in lines:
        _print_line(branch, node, width, terminal)


def turn_node(turn: NumberedTurn, zone: tzinfo | None) -> Node:
    """Return a turn with all that hangs on it."""
    trace = turn.trace
    kept = trace.turn
    color = _TURN_COLORS.get(kept.state, "yellow")
    failure = [Node(label=cell(kept.error), styles=(color,))] if kept.error else []
    return Node(
        label=f"{turn.number} {ending(kept.state)} · {clock_time(kept.started_at, zone)}",
        figures=(duration(kept.started_at, trace.ended_at), "", *_usage_figures(trace.usage)),
        styles=("bold", color),
        below=(*_branches(turn), *failure),
    )


def _branches(turn: NumberedTurn) -> Iterator[Node]:
    """Yield the model calls, each with the tools behind it, and the breaks before them."""
    for model, tools in _rounds(turn.trace.spans):
        below = tuple(_tool_nodes(tools))
        if model is None:
            yield from below
            continue
        for broken in turn.breaks:
            if broken.step == model.number:
                yield _break_node(broken)
        yield Node(
            label=cell(model.model),
            figures=(
                duration(model.started_at, model.ended_at),
                in_seconds(model.first_text_seconds) if model.first_text_seconds is not None else "",
                *_usage_figures(model.usage),
            ),
            below=below,
        )


def _break_node(broken: Break) -> Node:
    return Node(label=f"prefix break: {cell(broken.reason)} ({price(broken)})", styles=("yellow",))


def _rounds(spans: Iterable[Span]) -> list[tuple[ModelSpan | None, list[ToolSpan]]]:
    rounds: list[tuple[ModelSpan | None, list[ToolSpan]]] = [(None, [])]
    for span in spans:
        if isinstance(span, ModelSpan):
            rounds.append((span, []))
        else:
            rounds[-1][1].append(span)
    return rounds


def _tool_nodes(tools: Sequence[ToolSpan]) -> Iterator[Node]:
    for group in at_once(tools):
        nodes = tuple(_tool_node(tool) for tool in group)
        if len(group) == 1:
            yield nodes[0]
        else:
            took = duration(group[0].started_at, max(tool.ended_at for tool in group))
            yield Node(label=f"{len(group)} at once", figures=(took,), styles=("dim",), below=nodes)


def at_once(tools: Iterable[ToolSpan]) -> list[list[ToolSpan]]:
    """Return the calls in groups that overlap in time."""
    groups: list[list[ToolSpan]] = []
    until: datetime | None = None
    for tool in sorted(tools, key=lambda tool: (tool.started_at, tool.number)):
        if until is not None and tool.started_at < until:
            groups[-1].append(tool)
            until = max(until, tool.ended_at)
        else:
            groups.append([tool])
            until = tool.ended_at
    return groups


def _tool_node(tool: ToolSpan) -> Node:
    return Node(
        label=cell(f"{tool.name} {tool.summary}".strip()),
        figures=(duration(tool.started_at, tool.ended_at),),
        remark=outcome(tool),
        remark_style=_TOOL_COLORS[tool.state],
    )


def _total(trace: SessionTrace) -> Node:
    traces = [turn.trace for turn in trace.turns]
    took = sum((one.ended_at - one.turn.started_at).total_seconds() for one in traces)
    return Node(
        label=f"total · {steps_counted(*traces)}",
        figures=(in_seconds(took), "", *_usage_figures(trace.usage)),
        styles=("bold",),
    )


def _usage_figures(usage: Usage) -> tuple[str, ...]:
    if not usage.calls:
        return ("", "", "", "")
    tokens = (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens)
    return (*(amount(number) for number in tokens), money(usage.cost_microdollars))


def _flattened(root: Node) -> Iterator[tuple[str, Node]]:
    yield "", root
    yield from _below(root, "")


def _below(node: Node, indent: str) -> Iterator[tuple[str, Node]]:
    for place, child in enumerate(node.below, 1):
        last = place == len(node.below)
        yield f"{indent}{'└─ ' if last else '├─ '}", child
        yield from _below(child, f"{indent}{'   ' if last else '│  '}")


def _print_line(branch: str, node: Node, width: int, terminal: Terminal) -> None:
    room = (width if node.figures else terminal.width) - columns(branch)
    label = cut(node.label, room)
    gap = " " * (room - columns(label))
    figures = "".join(pad(text, size, right=True) for text, size in zip(node.figures, _WIDTHS, strict=False))
    text = f"{terminal.styled(branch, 'dim')}{terminal.styled(label, *node.styles)}"
    if node.figures:
        text += gap + terminal.styled(figures, *node.styles)
    if node.remark:
        text += "  " + (terminal.styled(node.remark, node.remark_style))
    terminal.line(cut(text.rstrip(), terminal.width))

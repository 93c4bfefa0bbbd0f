"""`talaria trace` and `talaria usage`: the timeline of a session's turns, and tokens and cost of the last days."""

import argparse
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

from msgspec import Struct, structs

from talaria.cli.commands.trace.format import (
    count_steps,
    format_break_cost,
    format_duration,
    format_seconds,
    format_tokens,
    format_tool_outcome,
    format_turn_state,
)
from talaria.cli.parser import add_completion
from talaria.cli.services import Services
from talaria.cli.session_lookup import find_session
from talaria.cli.terminal import Terminal
from talaria.cli.terminal_text import cut, display_width, format_cell, pad
from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Transaction
from talaria.contracts.stores.turns import DailyUsage, TurnState, UsageGroup
from talaria.core.errors import Refused
from talaria.core.formatting import find_zone, format_money, format_time, pluralize
from talaria.core.messages import Usage
from talaria.observability.trace import (
    ModelSpan,
    NumberedTurn,
    PrefixBreak,
    SessionTrace,
    Span,
    ToolSpan,
    ToolSpanState,
    read_trace,
    sum_usage,
)
from talaria.settings.atomic_files import write_file

_HEADERS = ("TIME", "FIRST", "IN", "CACHED", "OUT", "COST")
_WIDTHS = (8, 7, 7, 7, 7, 9)
_NARROWEST_LABEL = 16
_TURN_COLORS: dict[TurnState, str] = {"answered": "green", "running": "cyan", "failed": "red"}
_TOOL_COLORS: dict[ToolSpanState, str] = {"ok": "green", "running": "cyan", "failed": "red", "interrupted": "yellow"}
_STDOUT = "-"
_MAX_COUNT = 1_000_000
_EPILOG = """\
A prefix break is a request that starts differently from the one before, so the
provider couldn't use its prompt cache. --breaks lists them.
"""
_USAGE_GROUPS: dict[str, UsageGroup] = {"day": "model", "model": "model", "surface": "surface", "person": "owner"}
_MOST_DAYS = 3660


class TraceCommand:
    """`talaria trace`: show the timeline, tokens and cost of a session's turns."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the arguments."""
        parser.epilog = _EPILOG
        session = parser.add_argument("session", metavar="SESSION", help="id, or part of its title or first message")
        add_completion(session, "sessions")
        which = parser.add_mutually_exclusive_group()
        which.add_argument("--turn", metavar="TURN", help="only this turn: its number or id")
        which.add_argument("--last", metavar="N", type=_parse_count, default=20, help="the last N turns (default: 20)")
        how = parser.add_mutually_exclusive_group()
        how.add_argument("--breaks", action="store_true", help="list the prefix breaks and their cost")
        page = how.add_argument("--html", metavar="FILE", help="write the timeline as a web page; - prints it")
        picture = how.add_argument("--svg", metavar="FILE", help="write the timeline as an image; - prints it")
        add_completion(page, "files")
        add_completion(picture, "files")
        parser.add_argument("--force", action="store_true", help="overwrite an existing file")
        parser.add_argument("--json", action="store_true", help="print JSON")

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Show the trace and return the exit code."""

        show_trace(arguments, services)
        return 0


class UsageCommand:
    """`talaria usage`: show tokens and cost of the last days, by day, model, surface or person."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the options."""
        parser.epilog = "Days are in UTC. Calls of a model without a known price are shown as unknown, not as free."
        parser.add_argument("--days", metavar="N", type=_parse_days, default=30, help="the last N days (default: 30)")
        parser.add_argument(
            "--by", choices=tuple(_USAGE_GROUPS), default="day", help="what to add up by (default: day)"
        )
        parser.add_argument("--json", action="store_true", help="print JSON")

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Show the usage."""
        last = datetime.now(UTC).date()
        first = last - timedelta(days=arguments.days - 1)
        with services.open_database() as database:
            found = database.read(lambda tx: tx.usage.by_day(_USAGE_GROUPS[arguments.by], first, last))
        rows = _sum_rows(found, arguments.by)
        if arguments.json:
            services.terminal.json(rows)
        elif rows:
            headers = (arguments.by.upper(), "TURNS", "CALLS", "IN", "CACHED", "OUT", "COST")
            services.terminal.table(headers, [_format_usage_row(row, arguments.by) for row in rows])
        elif services.terminal.interactive:
            services.terminal.note("Nothing was used in this time.")
        return 0


class UsageRow(Struct, frozen=True, kw_only=True):
    """Usage as printed by `--json`; ``unpriced_calls`` have no known price and are missing in the cost."""

    name: str
    turns: int
    unpriced_calls: int
    usage: Usage


def show_trace(arguments: argparse.Namespace, services: Services) -> None:
    """Print or draw the requested trace of one session."""

    def read(store: Transaction) -> SessionTrace:
        session = find_session(store, arguments.session)
        return read_trace(store, session, SystemClock().now(), turn=arguments.turn, last=arguments.last)

    with services.open_database() as database:
        trace = database.read(read)
    zone = find_zone(services.settings().cli.time_zone)
    if arguments.html is not None or arguments.svg is not None:
        _draw(trace, arguments, services, zone)
    elif arguments.json:
        services.terminal.json(
            [_list_fields(one) for one in trace.breaks] if arguments.breaks else _trace_as_data(trace)
        )
    elif arguments.breaks:
        _print_breaks(trace, services, zone)
    elif trace.turns:
        print_tree(trace, services.terminal, zone)
    else:
        services.terminal.note("This session has no turns yet.")


class TreeNode(Struct, frozen=True, kw_only=True):
    """Line of the tree with its children; ``note`` follows the time instead of numbers.

    A line without numbers may use the whole width.
    """

    label: str
    cells: tuple[str, ...] = ()
    note: str = ""
    styles: tuple[str, ...] = ()
    note_style: str = ""
    children: tuple["TreeNode", ...] = ()


def print_tree(trace: SessionTrace, terminal: Terminal, zone: tzinfo | None) -> None:
    """Print the turns of a trace and their totals."""
    if trace.earlier:
        more = trace.earlier + len(trace.turns)
        note = f"… {pluralize(trace.earlier, 'earlier turn')}; --last {more} shows everything"
        terminal.line(terminal.style(cut(note, terminal.width), "dim"))
    roots = [build_turn_node(turn, zone) for turn in trace.turns]
    roots += [_build_break_node(prefix_break) for prefix_break in trace.breaks if prefix_break.turn is None]
    if len(trace.turns) > 1:
        roots.append(_build_total(trace))
    lines = [line for root in roots for line in _flatten(root)]
    available = max(terminal.width - sum(_WIDTHS), _NARROWEST_LABEL)
    width = min(available, max((display_width(branch + node.label) for branch, node in lines if node.cells), default=0))
    _print_line("TURN", TreeNode(label="", cells=_HEADERS, styles=("dim",)), width, terminal)
    for branch, node in lines:
        _print_line(branch, node, width, terminal)


def build_turn_node(turn: NumberedTurn, zone: tzinfo | None) -> TreeNode:
    """Return the node of a turn with all its children."""
    trace = turn.trace
    record = trace.turn
    color = _TURN_COLORS.get(record.state, "yellow")
    failure = [TreeNode(label=format_cell(record.error), styles=(color,))] if record.error else []
    return TreeNode(
        label=f"{turn.number} {format_turn_state(record.state)} · {format_time(record.started_at, zone)}",
        cells=(format_duration(record.started_at, trace.ended_at), "", *_format_usage_cells(trace.usage)),
        styles=("bold", color),
        children=(*_build_branches(turn), *failure),
    )


def group_concurrent(tools: Iterable[ToolSpan]) -> list[list[ToolSpan]]:
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


def _build_branches(turn: NumberedTurn) -> Iterator[TreeNode]:
    """Yield the model calls, each with its tool calls, and the breaks before them."""
    for model, tools in _group_rounds(turn.trace.spans):
        children = tuple(_build_tool_nodes(tools))
        if model is None:
            yield from children
            continue
        for prefix_break in turn.breaks:
            if prefix_break.step == model.number:
                yield _build_break_node(prefix_break)
        yield TreeNode(
            label=format_cell(model.model),
            cells=(
                format_duration(model.started_at, model.ended_at),
                format_seconds(model.first_text_seconds) if model.first_text_seconds is not None else "",
                *_format_usage_cells(model.usage),
            ),
            children=children,
        )


def _build_break_node(prefix_break: PrefixBreak) -> TreeNode:
    return TreeNode(
        label=f"prefix break: {format_cell(prefix_break.reason)} ({format_break_cost(prefix_break)})",
        styles=("yellow",),
    )


def _group_rounds(spans: Iterable[Span]) -> list[tuple[ModelSpan | None, list[ToolSpan]]]:
    rounds: list[tuple[ModelSpan | None, list[ToolSpan]]] = [(None, [])]
    for span in spans:
        if isinstance(span, ModelSpan):
            rounds.append((span, []))
        else:
            rounds[-1][1].append(span)
    return rounds


def _build_tool_nodes(tools: Sequence[ToolSpan]) -> Iterator[TreeNode]:
    for group in group_concurrent(tools):
        nodes = tuple(_build_tool_node(tool) for tool in group)
        if len(group) == 1:
            yield nodes[0]
        else:
            elapsed = format_duration(group[0].started_at, max(tool.ended_at for tool in group))
            yield TreeNode(label=f"{len(group)} at once", cells=(elapsed,), styles=("dim",), children=nodes)


def _build_tool_node(tool: ToolSpan) -> TreeNode:
    return TreeNode(
        label=format_cell(f"{tool.name} {tool.summary}".strip()),
        cells=(format_duration(tool.started_at, tool.ended_at),),
        note=format_tool_outcome(tool),
        note_style=_TOOL_COLORS[tool.state],
    )


def _build_total(trace: SessionTrace) -> TreeNode:
    traces = [turn.trace for turn in trace.turns]
    elapsed = sum((one.ended_at - one.turn.started_at).total_seconds() for one in traces)
    return TreeNode(
        label=f"total · {count_steps(*traces)}",
        cells=(format_seconds(elapsed), "", *_format_usage_cells(trace.usage)),
        styles=("bold",),
    )


def _format_usage_cells(usage: Usage) -> tuple[str, ...]:
    if not usage.calls:
        return ("", "", "", "")
    tokens = (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens)
    return (*(format_tokens(number) for number in tokens), format_money(usage.cost_microdollars))


def _flatten(root: TreeNode) -> Iterator[tuple[str, TreeNode]]:
    yield "", root
    yield from _walk_children(root, "")


def _walk_children(node: TreeNode, indent: str) -> Iterator[tuple[str, TreeNode]]:
    for index, child in enumerate(node.children, 1):
        last = index == len(node.children)
        yield f"{indent}{'└─ ' if last else '├─ '}", child
        yield from _walk_children(child, f"{indent}{'   ' if last else '│  '}")


def _print_line(branch: str, node: TreeNode, width: int, terminal: Terminal) -> None:
    available = (width if node.cells else terminal.width) - display_width(branch)
    label = cut(node.label, available)
    gap = " " * (available - display_width(label))
    cells = "".join(pad(text, size, right=True) for text, size in zip(node.cells, _WIDTHS, strict=False))
    text = f"{terminal.style(branch, 'dim')}{terminal.style(label, *node.styles)}"
    if node.cells:
        text += gap + terminal.style(cells, *node.styles)
    if node.note:
        text += "  " + (terminal.style(node.note, node.note_style))
    terminal.line(cut(text.rstrip(), terminal.width))


def _draw(trace: SessionTrace, arguments: argparse.Namespace, services: Services, zone: tzinfo | None) -> None:
    from talaria.cli.commands.trace.svg import draw_page, draw_svg  # noqa: PLC0415 (loaded when a picture is requested)

    text = (draw_svg if arguments.html is None else draw_page)(trace, zone)
    target = arguments.svg if arguments.html is None else arguments.html
    if target == _STDOUT:
        services.terminal.document(text)
        return
    path = Path(target)
    if not arguments.force and (path.exists() or path.is_symlink()):
        raise Refused(f"{path} already exists; --force overwrites it.")
    write_file(path, text)
    services.terminal.note(f"Wrote the timeline of {pluralize(len(trace.turns), 'turn')} to {path}.")


def _print_breaks(trace: SessionTrace, services: Services, zone: tzinfo | None) -> None:
    rows = [
        (
            format_time(one.at, zone),
            one.reason,
            one.model,
            "" if one.turn is None else one.turn,
            format_tokens(one.tokens) if one.tokens else "",
            format_money(one.cost_microdollars),
        )
        for one in trace.breaks
    ]
    if rows:
        services.terminal.table(("TIME", "REASON", "MODEL", "TURN", "TOKENS", "PRICE"), rows)
    tokens = sum(one.tokens for one in trace.breaks)
    cost = format_money(sum(one.cost_microdollars for one in trace.breaks))
    paid = (
        f": {format_tokens(tokens)} tokens were not read from the cache{f', about {cost}' if cost else ''}"
        if rows
        else ""
    )
    services.terminal.note(f"{pluralize(len(rows), 'prefix break')}{paid}.")


def _trace_as_data(trace: SessionTrace) -> dict[str, Any]:
    return {
        "session_id": trace.session.id,
        "earlier_turns": trace.earlier,
        "turns": [_turn_as_data(turn) for turn in trace.turns],
        "usage": _list_fields(trace.usage),
        "breaks": [_list_fields(one) for one in trace.breaks],
    }


def _turn_as_data(turn: NumberedTurn) -> dict[str, Any]:
    trace = turn.trace
    return {
        "number": turn.number,
        **_list_fields(trace.turn),
        "seconds": (trace.ended_at - trace.turn.started_at).total_seconds(),
        "usage": _list_fields(trace.usage),
        "steps": [
            {
                "kind": type(span).__struct_config__.tag,
                **_list_fields(span),
                "seconds": (span.ended_at - span.started_at).total_seconds(),
            }
            for span in trace.spans
        ],
    }


def _list_fields(value: Any) -> dict[str, Any]:
    """Return all fields of a struct, including zeros."""
    return {name: _list_fields(one) if isinstance(one, Usage) else one for name, one in structs.asdict(value).items()}


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(_MAX_COUNT)) and 1 <= int(text) <= _MAX_COUNT):
        raise argparse.ArgumentTypeError(f"`{text}` isn't a number from 1 to {_MAX_COUNT}")
    return int(text)


def _sum_rows(found: Iterable[DailyUsage], by: str) -> list[UsageRow]:
    members: dict[str, list[DailyUsage]] = {}
    for one in found:
        members.setdefault(one.day.isoformat() if by == "day" else one.member, []).append(one)
    rows = [
        UsageRow(
            name=name,
            turns=sum(one.turns for one in own),
            unpriced_calls=sum(one.unpriced_calls for one in own),
            usage=sum_usage(one.usage for one in own),
        )
        for name, own in members.items()
    ]
    return rows if by == "day" else sorted(rows, key=lambda row: (-row.usage.cost_microdollars, row.name))


def _format_usage_row(row: UsageRow, by: str) -> tuple[object, ...]:
    usage = row.usage
    name = row.name or ("you" if by == "person" else "unknown")
    cached = f"{100 * usage.cache_read_tokens // usage.input_tokens}%" if usage.input_tokens else ""
    known = format_money(usage.cost_microdollars)
    cost = " + ".join(filter(None, [known, "unknown" if row.unpriced_calls else ""])) or "$0"
    return name, row.turns, usage.calls, usage.input_tokens, cached, usage.output_tokens, cost


def _parse_days(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(_MOST_DAYS)) and 1 <= int(text) <= _MOST_DAYS):
        raise argparse.ArgumentTypeError(f"`{text}` isn't a number from 1 to {_MOST_DAYS}")
    return int(text)

"""Output of a trace as tree, breaks, picture, page or JSON."""

import argparse
from datetime import tzinfo
from pathlib import Path
from typing import Any

from msgspec import structs

from talaria.cli.commands.trace.format import format_tokens
from talaria.cli.commands.trace.load import NumberedTurn, SessionTrace, read_trace
from talaria.cli.commands.trace.tree import print_tree
from talaria.cli.services import Services
from talaria.cli.session_lookup import find_session
from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Transaction
from talaria.core.errors import Refused
from talaria.core.formatting import find_zone, format_money, format_time, pluralize
from talaria.core.messages import Usage
from talaria.settings.atomic_files import write_file

_STDOUT = "-"


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
        services.terminal.json([_fields(one) for one in trace.breaks] if arguments.breaks else _as_data(trace))
    elif arguments.breaks:
        _print_breaks(trace, services, zone)
    elif trace.turns:
        print_tree(trace, services.terminal, zone)
    else:
        services.terminal.note("This session has no turns yet.")


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


def _as_data(trace: SessionTrace) -> dict[str, Any]:
    return {
        "session_id": trace.session.id,
        "earlier_turns": trace.earlier,
        "turns": [_turn_as_data(turn) for turn in trace.turns],
        "usage": _fields(trace.usage),
        "breaks": [_fields(one) for one in trace.breaks],
    }


def _turn_as_data(turn: NumberedTurn) -> dict[str, Any]:
    trace = turn.trace
    return {
        "number": turn.number,
        **_fields(trace.turn),
        "seconds": (trace.ended_at - trace.turn.started_at).total_seconds(),
        "usage": _fields(trace.usage),
        "steps": [
            {
                "kind": type(span).__struct_config__.tag,
                **_fields(span),
                "seconds": (span.ended_at - span.started_at).total_seconds(),
            }
            for span in trace.spans
        ],
    }


def _fields(value: Any) -> dict[str, Any]:
    """Return all fields of a struct, including zeros."""
    return {name: _fields(one) if isinstance(one, Usage) else one for name, one in structs.asdict(value).items()}

"""Show a trace in the form that was asked for: tree, breaks, picture, page or JSON."""

import argparse
from datetime import tzinfo
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import structs

from talaria.cli.services import Services
from talaria.cli.session_actions.names import find_session
from talaria.cli.traces.reading import NumberedTurn, SessionTrace, read_trace
from talaria.cli.traces.tree import print_tree
from talaria.cli.traces.wording import amount
from talaria.contracts.clock import SystemClock
from talaria.contracts.store import Transaction
from talaria.core.errors import Refused
from talaria.core.messages import Usage
from talaria.core.wording import clock_time, counted, find_zone, money
from talaria.settings.files import write_file

_PRINT = "-"


def show_trace(arguments: argparse.Namespace, services: Services) -> None:
    """Print or draw what was asked for of one session."""

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
        services.terminal.note("Nothing has been asked in this session yet.")


def _draw(trace: SessionTrace, arguments: argparse.Namespace, services: Services, zone: tzinfo | None) -> None:
    # Drawing is loaded when a picture is asked for.
    picture = import_module("talaria.cli.traces.picture")
    text: str = (picture.draw_svg if arguments.html is None else picture.draw_page)(trace, zone)
    target = arguments.svg if arguments.html is None else arguments.html
    if target == _PRINT:
        services.terminal.document(text)
        return
    path = Path(target)
    if not arguments.force and (path.exists() or path.is_symlink()):
        raise Refused(f"{path} would be replaced; --force does that.")
    write_file(path, text)
    services.terminal.note(f"The timeline of {counted(len(trace.turns), 'turn')} went to {path}.")


def _print_breaks(trace: SessionTrace, services: Services, zone: tzinfo | None) -> None:
    rows = [
        (
            clock_time(one.at, zone),
            one.reason,
            one.model,
            "" if one.turn is None else one.turn,
            amount(one.tokens) if one.tokens else "",
            money(one.cost_microdollars),
        )
        for one in trace.breaks
    ]
    if rows:
        services.terminal.table(("TIME", "REASON", "MODEL", "TURN", "TOKENS", "PRICE"), rows)
    tokens = sum(one.tokens for one in trace.breaks)
    cost = money(sum(one.cost_microdollars for one in trace.breaks))
    paid = f": {amount(tokens)} tokens were not read from the cache{f', about {cost}' if cost else ''}" if rows else ""
    services.terminal.note(f"{counted(len(rows), 'prefix break')}{paid}.")


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
    """Return every field of a struct, zeros included."""
    return {name: _fields(one) if isinstance(one, Usage) else one for name, one in structs.asdict(value).items()}

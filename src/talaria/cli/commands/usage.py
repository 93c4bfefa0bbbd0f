"""`talaria usage`: show tokens and cost of the last days, by day, model, surface or person."""

import argparse
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from talaria.cli.services import Services
from talaria.contracts.stores.turns import DailyUsage, UsageGroup
from talaria.core.formatting import format_money
from talaria.core.messages import Usage
from talaria.observability.trace import sum_usage

_GROUPS: dict[str, UsageGroup] = {"day": "model", "model": "model", "surface": "surface", "person": "owner"}
_MOST_DAYS = 3660


class UsageRow(Struct, frozen=True, kw_only=True):
    """Usage as printed by `--json`; ``unpriced_calls`` have no known price and are missing in the cost."""

    name: str
    turns: int
    unpriced_calls: int
    usage: Usage


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.epilog = "Days are in UTC. Calls of a model without a known price are shown as unknown, not as free."
    parser.add_argument("--days", metavar="N", type=_parse_days, default=30, help="the last N days (default: 30)")
    parser.add_argument("--by", choices=tuple(_GROUPS), default="day", help="what to add up by (default: day)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Show the usage."""
    last = datetime.now(UTC).date()
    first = last - timedelta(days=arguments.days - 1)
    with services.open_database() as database:
        found = database.read(lambda tx: tx.usage.by_day(_GROUPS[arguments.by], first, last))
    rows = _add_up(found, arguments.by)
    if arguments.json:
        services.terminal.json(rows)
    elif rows:
        headers = (arguments.by.upper(), "TURNS", "CALLS", "IN", "CACHED", "OUT", "COST")
        services.terminal.table(headers, [_format_row(row, arguments.by) for row in rows])
    elif services.terminal.interactive:
        services.terminal.note("Nothing was used in this time.")
    return 0


def _add_up(found: Iterable[DailyUsage], by: str) -> list[UsageRow]:
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


def _format_row(row: UsageRow, by: str) -> tuple[object, ...]:
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

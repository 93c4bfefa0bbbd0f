"""`talaria import`: bring settings, memory, skills, jobs and conversations from another agent."""

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from talaria.cli.services import Services
from talaria.cli.session_lookup import index_messages
from talaria.cli.terminal import Terminal
from talaria.contracts.imports import AGENTS, ImportChoices, ImportItem, ImportPlan, find_foreign_home
from talaria.core.errors import Refused

_MOST_LISTED = 20
_OUTCOMES = ("imported", "changed", "unchanged", "skipped")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.epilog = "Without AGENT, it lists the homes of other agents on this computer."
    parser.add_argument("agent", metavar="AGENT", nargs="?", choices=AGENTS, help=f"one of {', '.join(AGENTS)}")
    parser.add_argument("path", metavar="PATH", nargs="?", type=Path, help="its home (default: the usual one)")
    parser.add_argument("--dry-run", action="store_true", help="show the plan and change nothing")
    parser.add_argument("--yes", action="store_true", help="don't ask for confirmation; keys are copied too")
    parser.add_argument("--no-keys", action="store_true", help="don't copy keys and tokens")
    parser.add_argument("--start-jobs", action="store_true", help="start imported jobs (default: they are paused)")
    parser.add_argument(
        "--owner",
        metavar="PLATFORM:ID",
        action="append",
        default=[],
        help="this person is you: they become the owner here, and their conversations yours",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Show the plan, import, and print a report."""
    if arguments.agent is None:
        return _list_homes(services, as_json=arguments.json)
    terminal = services.terminal
    with services.setup_probes().open_importer(arguments.agent, arguments.path) as importer:
        plan = importer.plan()
        if arguments.dry_run:
            _show_plan(plan, terminal, as_json=arguments.json)
            return 0
        if not arguments.json:
            _show_plan(plan, terminal, as_json=False)
        choices = _ask(plan, arguments, services)
        with terminal.progress("Importing", plan.messages) as progress:
            items = importer.run(choices, progress.advance)
    with services.open_database() as database:
        index_messages(database, terminal)
    if arguments.json:
        terminal.json({"agent": plan.agent, "home": plan.home, "summary": _summarize(items), "items": items})
        return 0
    _show_report(plan, items, terminal)
    return 0


def _list_homes(services: Services, *, as_json: bool) -> int:
    """Show what could be imported."""
    terminal = services.terminal
    usual = [(agent, find_foreign_home(agent, services.environment)) for agent in AGENTS]
    homes = [(agent, home) for agent, home in usual if home.is_dir()]
    if as_json:
        terminal.json([{"agent": agent, "home": str(home)} for agent, home in homes])
        return 0
    for agent, home in homes:
        terminal.line(f"{agent} has a home in {home}. `talaria import {agent} --dry-run` shows what would be imported.")
    if not homes:
        terminal.line(
            f"No home of {', '.join(AGENTS[:-1])} or {AGENTS[-1]} was found. Name one: `talaria import AGENT PATH`."
        )
    return 0


def _ask(plan: ImportPlan, arguments: argparse.Namespace, services: Services) -> ImportChoices:
    """Return the decisions of the person; raises `Refused` if they don't want the import."""
    terminal, owners = services.terminal, list(arguments.owner)
    if not arguments.yes:
        if not terminal.interactive:
            raise Refused("Nothing was imported. Add --yes to import without questions, or --dry-run to see the plan.")
        if not terminal.confirm(f"Import this into the profile {services.profile.name}?"):
            raise Refused("Nothing was imported.")
        owners += [person for person in plan.people if terminal.confirm(f"Are you {person}?")]
    with_keys = bool(plan.keys) and not arguments.no_keys
    if with_keys and not arguments.yes:
        with_keys = terminal.confirm(f"Copy these keys and tokens, too: {', '.join(plan.keys)}?")
    return ImportChoices(with_keys=with_keys, start_jobs=arguments.start_jobs, owners=tuple(dict.fromkeys(owners)))


def _show_plan(plan: ImportPlan, terminal: Terminal, *, as_json: bool) -> None:
    if as_json:
        terminal.json({"plan": plan, "summary": _summarize(plan.items)})
        return
    terminal.line(f"Found {plan.agent} in {plan.home}, with {plan.messages:,} messages. The plan:")
    rows = [
        (kind, _join(names))
        for kind in dict.fromkeys(item.kind for item in plan.items)
        if (
            names := [item.name for item in plan.items if item.kind == kind and item.outcome in {"imported", "changed"}]
        )
    ]
    for kind, listed in rows:
        terminal.line(f"  {kind}: {listed}")
    here = sum(item.count for item in plan.items if item.outcome == "unchanged")
    if here:
        terminal.line(f"Already here: {here}.")
    _list_items("Skipped", [item for item in plan.items if item.outcome == "skipped"], terminal)


def _show_report(plan: ImportPlan, items: Sequence[ImportItem], terminal: Terminal) -> None:
    terminal.line(f"Imported from {plan.agent} in {plan.home}:")
    for kind, counts in _summarize(items).items():
        terminal.line(f"  {kind}: {', '.join(f'{counts[one]:,} {one}' for one in _OUTCOMES if one in counts)}")
    for outcome in ("imported", "changed", "skipped"):
        named = [item for item in items if item.outcome == outcome and item.detail]
        _list_items("Notes" if outcome == "imported" else outcome.capitalize(), named, terminal)
    terminal.note(f"{plan.agent} itself was not changed. Run the same command again to import what is new there.")


def _list_items(heading: str, items: Sequence[ImportItem], terminal: Terminal) -> None:
    if not items:
        return
    terminal.line(f"{heading}:")
    for item in items[:_MOST_LISTED]:
        terminal.line(f"  {item.kind}: {item.name}{f' ({item.detail})' if item.detail else ''}")
    if len(items) > _MOST_LISTED:
        terminal.line(f"  … and {len(items) - _MOST_LISTED} more; --json lists all of them.")


def _summarize(items: Sequence[ImportItem]) -> dict[str, dict[str, int]]:
    """Return how many things of each kind had each outcome."""
    counts: dict[str, Counter[str]] = {}
    for item in items:
        counts.setdefault(item.kind, Counter())[item.outcome] += item.count
    return {kind: dict(found) for kind, found in counts.items()}


def _join(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_LISTED])
    return shown if len(names) <= _MOST_LISTED else f"{shown} and {len(names) - _MOST_LISTED} more"

"""`talaria checkpoints`: list checkpoints, compare with them, restore and prune them."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from talaria.cli.services import Services
from talaria.contracts.checkpoints import EditedSince
from talaria.core.errors import Refused
from talaria.core.formatting import find_zone, format_size, format_time, pluralize

if TYPE_CHECKING:  # loaded when a diff is shown
    from talaria.contracts.checkpoints import CheckpointHistory, RestorePlan

_EPILOG = """\
Before the agent's first change to files in a turn, a checkpoint of the workspace
is taken. 1 is the newest. Restoring takes a checkpoint of the present state
first, and refuses to overwrite your own edits unless you say how.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list", folder=".", all=False, json=False)
    listing = actions.add_parser("list", help="list the checkpoints of a folder, or all workspaces")
    listing.add_argument("--all", action="store_true", help="list all workspaces instead")
    comparing = actions.add_parser("diff", help="show what has changed since a checkpoint")
    restoring = actions.add_parser("restore", help="return to a checkpoint")
    edits = restoring.add_mutually_exclusive_group()
    edits.add_argument("--force", action="store_true", help="overwrite edits that the agent didn't make")
    edits.add_argument("--keep-edits", action="store_true", help="leave files alone that the agent didn't edit last")
    restoring.add_argument("--dry-run", action="store_true", help="only show what would be restored")
    pruning = actions.add_parser("prune", help="delete expired checkpoints and free their space")
    pruning.add_argument("--all", action="store_true", help="delete all checkpoints")
    for action, default in ((comparing, "1"), (restoring, None)):
        action.add_argument(
            "checkpoint", metavar="CHECKPOINT", nargs="?" if default else None, default=default, help="number or id"
        )
    for action in (listing, comparing, restoring):
        action.add_argument("--folder", default=".", metavar="FOLDER", help="the workspace; by default this folder")
    pruning.add_argument("--folder", default="", metavar="FOLDER", help="only this workspace")
    for action in (listing, comparing, restoring, pruning):
        action.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    if arguments.action == "prune":
        folder = Path(arguments.folder) if arguments.folder else None
        removed = services.files().checkpoints.prune(everything=arguments.all, folder=folder)
        _print(arguments, services, {"removed": removed}, f"Deleted {pluralize(removed, 'checkpoint')}.")
    elif arguments.action == "list" and arguments.all:
        _list_workspaces(arguments, services)
    elif arguments.action == "list":
        _list(arguments, services)
    else:
        history = services.files().checkpoints.open(Path(arguments.folder))
        if arguments.action == "diff":
            _diff(arguments, services, history)
        else:
            _restore(arguments, services, history)
    return 0


def _list(arguments: argparse.Namespace, services: Services) -> None:
    history = services.files().checkpoints.open(Path(arguments.folder))
    listed = history.list()
    if arguments.json:
        services.terminal.json(listed)
    elif listed:
        zone = find_zone(services.settings().cli.time_zone)
        rows = [(one.number, one.id, format_time(one.at, zone), one.label) for one in listed]
        services.terminal.table(("NUMBER", "ID", "TIME", "BEFORE"), rows)
    elif services.terminal.interactive:
        services.terminal.note(f"There are no checkpoints of {history.root}: the agent hasn't changed anything there.")


def _list_workspaces(arguments: argparse.Namespace, services: Services) -> None:
    found = services.files().checkpoints.workspaces()
    if arguments.json:
        services.terminal.json(found)
        return
    zone = find_zone(services.settings().cli.time_zone)
    rows = [(one.folder, one.checkpoints, format_time(one.newest, zone), format_size(one.bytes)) for one in found]
    services.terminal.table(("FOLDER", "CHECKPOINTS", "NEWEST", "SIZE"), rows)


def _diff(arguments: argparse.Namespace, services: Services, history: "CheckpointHistory") -> None:
    from talaria.cli.chat.event_printer import format_diff_lines  # noqa: PLC0415 (loaded when a diff is shown)
    from talaria.commands.branches import format_changes  # noqa: PLC0415 (loaded when a diff is shown)

    changes = history.diff(history.find(arguments.checkpoint))
    if arguments.json:
        services.terminal.json(changes)
    elif changes:
        text = format_changes(changes)
        for line in format_diff_lines(text, services.terminal, limit=text.count("\n") + 1, indent=""):
            services.terminal.line(line)


def _restore(arguments: argparse.Namespace, services: Services, history: "CheckpointHistory") -> None:
    checkpoint = history.find(arguments.checkpoint)
    plan = history.plan(checkpoint)
    if arguments.dry_run:
        _print(arguments, services, plan, _describe_plan(plan))
        return
    try:
        keep = plan.edited if arguments.keep_edits else ()
        result = history.restore(checkpoint, keep=keep, overwrite=arguments.force)
    except EditedSince as error:
        raise Refused(f"{error} Use --keep-edits to leave them alone, or --force to overwrite them.") from error
    text = f"Restored {pluralize(len(result.written), 'file')}, removed {pluralize(len(result.removed), 'file')}."
    left_text = f" Left as they are: {', '.join(result.kept)}." if result.kept else ""
    _print(arguments, services, result, f"{text}{left_text} `talaria checkpoints restore 1` undoes this.")


def _describe_plan(plan: "RestorePlan") -> str:
    lines = [
        *(f"write {path}" for path in plan.written),
        *(f"remove {path}" for path in plan.removed),
        *(f"edited since, not by the agent: {path}" for path in plan.edited),
        *(f"not recorded, stays: {path}" for path in plan.unsaved),
    ]
    return "\n".join(lines) or "The files already are as they were at that time."


def _print(arguments: argparse.Namespace, services: Services, value: object, text: str) -> None:
    if arguments.json:
        services.terminal.json(value)
    else:
        services.terminal.line(text)

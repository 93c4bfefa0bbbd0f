"""`talaria approvals`: list what was allowed for good, and take it back."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from talaria.cli.services import Services
from talaria.core.errors import Refused
from talaria.sessions.standing_grants import grant_id, list_standing_grants, revoke_standing_grant

if TYPE_CHECKING:
    from talaria.agent.approval.grants import Grant

_EPILOG = """\
An approval given with "always" holds for the same call in the same folder, in
every conversation, until it is taken back here. Open conversations notice at
their next call.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="list what is allowed for good")
    revoke = actions.add_parser("revoke", help="take an approval back, so that it is asked about again")
    revoke.add_argument("id", metavar="ID", nargs="?", default="", help="the approval, or how its id begins")
    revoke.add_argument("--all", action="store_true", dest="every", help="take back all of them")
    for action in (listing, revoke):
        action.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    if arguments.action == "list":
        _list(arguments, services)
    else:
        _revoke(arguments, services)
    return 0


def _list(arguments: argparse.Namespace, services: Services) -> None:
    with services.open_database() as database:
        grants = database.read(list_standing_grants)
    if arguments.json:
        services.terminal.json(_as_data(grants))
    elif grants:
        rows = [(grant_id(one), one.tool, one.pattern, one.folder) for one in grants]
        services.terminal.table(("ID", "TOOL", "ALLOWED", "FOLDER"), rows)
    elif services.terminal.interactive:
        services.terminal.note('Nothing is allowed for good. Answering a question with "always" adds an entry.')


def _revoke(arguments: argparse.Namespace, services: Services) -> None:
    if bool(arguments.id) == arguments.every:
        raise Refused("Name one approval by its id, or use --all. `talaria approvals list` shows them.")
    with services.open_database() as database:
        gone = database.write(lambda tx: revoke_standing_grant(tx, arguments.id))
    if arguments.json:
        services.terminal.json(_as_data(gone))
        return
    for grant in gone:
        services.terminal.line(f"{grant.tool} is asked about again: {grant.pattern}")


def _as_data(grants: "Sequence[Grant]") -> list[dict[str, str]]:
    return [{"id": grant_id(one), "tool": one.tool, "allowed": one.pattern, "folder": one.folder} for one in grants]

"""`talaria approvals`: list and revoke permanent approvals."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from talaria.cli.services import Services
from talaria.core.errors import Refused
from talaria.runtime.questions import grant_id, list_standing_grants, revoke_standing_grant

if TYPE_CHECKING:
    from talaria.agent.approval.grants import Grant

_EPILOG = """\
An approval given with "always" applies to the same call in the same folder, in
every conversation, until you revoke it here. Open conversations notice at their
next call.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list")
    listing = actions.add_parser("list", help="list permanent approvals")
    revoke = actions.add_parser("revoke", help="revoke an approval")
    revoke.add_argument("id", metavar="ID", nargs="?", default="", help="the approval's id, or the start of it")
    revoke.add_argument("--all", action="store_true", dest="every", help="revoke all of them")
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
        services.terminal.note('There are no permanent approvals. Answering a question with "always" adds one.')


def _revoke(arguments: argparse.Namespace, services: Services) -> None:
    if bool(arguments.id) == arguments.every:
        raise Refused("Give the id of an approval, or use --all. `talaria approvals list` shows them.")
    with services.open_database() as database:
        revoked = database.write(lambda tx: revoke_standing_grant(tx, arguments.id))
    if arguments.json:
        services.terminal.json(_as_data(revoked))
        return
    for grant in revoked:
        services.terminal.line(f"Revoked {grant.tool}: {grant.pattern}")


def _as_data(grants: "Sequence[Grant]") -> list[dict[str, str]]:
    return [{"id": grant_id(one), "tool": one.tool, "allowed": one.pattern, "folder": one.folder} for one in grants]

"""`talaria approvals`: list, revoke and export what people have approved, and the rules of the settings."""

import argparse
from typing import TYPE_CHECKING

from msgspec import structs

from talaria.cli.services import Services
from talaria.core.errors import Refused
from talaria.runtime.questions import grant_id, list_session_grants, list_standing_grants, revoke_grants

if TYPE_CHECKING:
    from talaria.agent.approval.grants import Grant
    from talaria.contracts.store import Transaction

_EPILOG = """\
An approval given with "always" applies to the same call in the same folder, in
every conversation; one given for a conversation applies there. Both last until
you revoke them here. Open conversations notice at their next call. Rules are
settings: `talaria config set rules.NAME.action deny`.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list", sessions=False, json=False)
    listing = actions.add_parser("list", help="list permanent approvals")
    listing.add_argument("--sessions", action="store_true", help="also those given for one conversation")
    revoke = actions.add_parser("revoke", help="revoke an approval")
    revoke.add_argument("id", metavar="ID", nargs="?", default="", help="the approval's id, or the start of it")
    revoke.add_argument("--all", action="store_true", dest="every", help="revoke all of them")
    actions.add_parser("export", help="print mode, rules and all approvals as JSON")
    for action in (listing, revoke):
        action.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    if arguments.action == "list":
        _list(arguments, services)
    elif arguments.action == "export":
        _export(services)
    else:
        _revoke(arguments, services)
    return 0


def _list(arguments: argparse.Namespace, services: Services) -> None:
    with services.open_database() as database:
        grants = database.read(_list_all if arguments.sessions else _list_permanent)
    if arguments.json:
        services.terminal.json([_as_data(one, session) for session, one in grants])
    elif grants:
        where = ("SESSION",) if arguments.sessions else ()
        rows = [
            (grant_id(one), one.tool, one.pattern, one.folder, *((session,) if where else ()))
            for session, one in grants
        ]
        services.terminal.table(("ID", "TOOL", "ALLOWED", "FOLDER", *where), rows)
    elif services.terminal.interactive:
        services.terminal.note('There are no permanent approvals. Answering a question with "always" adds one.')


def _export(services: Services) -> None:
    settings = services.settings()
    with services.open_database() as database:
        grants = database.read(_list_all)
    rules = [{"name": name, **structs.asdict(rule)} for name, rule in settings.rules.items()]
    approvals = [_as_data(one, session) for session, one in grants]
    services.terminal.json(
        {"mode": settings.approval.mode, "allowed": settings.approval.allowed, "rules": rules, "approvals": approvals}
    )


def _revoke(arguments: argparse.Namespace, services: Services) -> None:
    if bool(arguments.id) == arguments.every:
        raise Refused("Give the id of an approval, or use --all. `talaria approvals list` shows them.")
    with services.open_database() as database:
        revoked = database.write(lambda tx: revoke_grants(tx, arguments.id))
    if arguments.json:
        services.terminal.json([_as_data(one, "") for one in revoked])
        return
    for grant in revoked:
        services.terminal.line(f"Revoked {grant.tool}: {grant.pattern}")


def _list_permanent(tx: "Transaction") -> "list[tuple[str, Grant]]":
    return [("", grant) for grant in list_standing_grants(tx)]


def _list_all(tx: "Transaction") -> "list[tuple[str, Grant]]":
    return [*_list_permanent(tx), *((str(session_id), grant) for session_id, grant in list_session_grants(tx))]


def _as_data(grant: "Grant", session: str) -> dict[str, str]:
    return {
        "id": grant_id(grant),
        "tool": grant.tool,
        "allowed": grant.pattern,
        "folder": grant.folder,
        **({"session": session} if session else {}),
    }

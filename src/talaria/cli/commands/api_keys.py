"""`talaria api-keys`: manage keys of the HTTP API."""

import argparse
from collections.abc import Callable, Mapping

from talaria.cli.services import Services
from talaria.core.formatting import find_zone, format_time

_SCOPES = ("chat", "agent", "read", "admin")
_EPILOG = """\
A key is shown only when it is created; the store keeps just a digest of it.
`chat` talks to the agent as a guest, with the guests' tools and its own
conversations; `agent` talks to it as you, with all tools; `read` reads
conversations; `admin` allows everything. Every request needs a key.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list")
    create = actions.add_parser("create", help="create a key and print it once")
    create.add_argument(
        "--scope",
        metavar="SCOPE",
        action="append",
        choices=_SCOPES,
        help="what the key allows: chat (default), agent, read or admin; repeatable",
    )
    listing = actions.add_parser("list", help="list the keys and their scopes")
    revoke = actions.add_parser("revoke", help="revoke a key")
    for action in (create, revoke):
        action.add_argument("name", metavar="NAME", help="name of the key")
    for action in (create, listing, revoke):
        action.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    _ACTIONS[arguments.action](arguments, services)
    return 0


def _create(arguments: argparse.Namespace, services: Services) -> None:
    from talaria.access.api_keys import create_key, new_token  # noqa: PLC0415 (loaded for an action: needs hashlib)

    token = new_token()
    with services.open_database() as database:
        key = database.write(lambda tx: create_key(tx, arguments.name, arguments.scope or ["chat"], token))
    if arguments.json:
        services.terminal.json({"name": key.name, "scopes": key.scopes, "key": token, "created_at": key.created_at})
        return
    services.terminal.line(token)
    services.terminal.note(f"Key `{key.name}` (scope {', '.join(key.scopes)}). It is not shown again.")


def _list(arguments: argparse.Namespace, services: Services) -> None:
    from talaria.access.api_keys import list_keys  # noqa: PLC0415 (loaded for an action: needs hashlib)

    with services.open_database() as database:
        keys = database.read(list_keys)
    if arguments.json:
        data = [{"name": key.name, "scopes": key.scopes, "created_at": key.created_at} for key in keys]
        services.terminal.json(data)
        return
    zone = find_zone(services.settings().cli.time_zone)
    rows = [(key.name, ", ".join(key.scopes), format_time(key.created_at, zone)) for key in keys]
    if rows:
        services.terminal.table(("NAME", "SCOPES", "CREATED"), rows)
    elif services.terminal.interactive:
        services.terminal.note(
            "There are no keys. `talaria api-keys create NAME` creates one; `talaria serve` "
            "creates the first one itself."
        )


def _revoke(arguments: argparse.Namespace, services: Services) -> None:
    from talaria.access.api_keys import (  # noqa: PLC0415 (loaded for an action: needs hashlib)
        list_keys,
        remove_key_file,
        revoke_key,
    )

    with services.open_database() as database:
        known = {key.name: key.digest for key in database.read(list_keys)}
        database.write(lambda tx: revoke_key(tx, arguments.name))
    remove_key_file(services.profile, known.get(arguments.name, ""))
    if arguments.json:
        services.terminal.json({"name": arguments.name, "revoked": True})
    else:
        services.terminal.line(f"Revoked the key `{arguments.name}`.")


_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Services], None]] = {
    "create": _create,
    "list": _list,
    "revoke": _revoke,
}

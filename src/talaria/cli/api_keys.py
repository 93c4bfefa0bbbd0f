"""`talaria api-keys`: keys with which programs ask the agent over HTTP."""

import argparse
from collections.abc import Callable, Mapping
from importlib import import_module

from talaria.cli.services import Services
from talaria.core.wording import clock_time, find_zone

_SCOPES = ("chat", "agent", "read", "admin")
_EPILOG = """\
A key is shown once, when it is created; the store has only a digest of it. With
`chat` a program talks to the agent as a guest, with the tools for guests and its
own conversations; with `agent` it talks to it as you, with all tools. `read`
reads conversations, `admin` does everything. Every request needs a key.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list")
    create = actions.add_parser("create", help="create a key, and print it this once")
    create.add_argument(
        "--scope",
        metavar="SCOPE",
        action="append",
        choices=_SCOPES,
        help="what it allows: chat (the default), agent, read or admin; can be repeated",
    )
    listing = actions.add_parser("list", help="list the keys by name, and what each is good for")
    revoke = actions.add_parser("revoke", help="revoke a key, so that it no longer works")
    for action in (create, revoke):
        action.add_argument("name", metavar="NAME", help="what it is called")
    for action in (create, listing, revoke):
        action.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    _ACTIONS[arguments.action](arguments, services)
    return 0


def _create(arguments: argparse.Namespace, services: Services) -> None:
    # Hashing is loaded for this action only: lists do not wait for it.
    keys = import_module("talaria.sessions.api_keys")
    token = keys.new_token()
    with services.open_database() as database:
        key = database.write(lambda tx: keys.create_key(tx, arguments.name, arguments.scope or ["chat"], token))
    if arguments.json:
        services.terminal.json({"name": key.name, "scopes": key.scopes, "key": token, "created_at": key.created_at})
        return
    services.terminal.line(token)
    services.terminal.note(f"This is `{key.name}`, for {', '.join(key.scopes)}. It is not shown again.")


def _list(arguments: argparse.Namespace, services: Services) -> None:
    list_keys = import_module("talaria.sessions.api_keys").list_keys
    with services.open_database() as database:
        keys = database.read(list_keys)
    if arguments.json:
        data = [{"name": key.name, "scopes": key.scopes, "created_at": key.created_at} for key in keys]
        services.terminal.json(data)
        return
    zone = find_zone(services.settings().cli.time_zone)
    rows = [(key.name, ", ".join(key.scopes), clock_time(key.created_at, zone)) for key in keys]
    if rows:
        services.terminal.table(("NAME", "SCOPES", "CREATED"), rows)
    elif services.terminal.interactive:
        services.terminal.note(
            "There are no keys. `create NAME` makes one; `talaria serve` creates the first by itself."
        )


def _revoke(arguments: argparse.Namespace, services: Services) -> None:
    keys = import_module("talaria.sessions.api_keys")
    with services.open_database() as database:
        known = {key.name: key.digest for key in database.read(keys.list_keys)}
        database.write(lambda tx: keys.revoke_key(tx, arguments.name))
    import_module("talaria.settings.api_key_file").remove_key_file(services.profile, known.get(arguments.name, ""))
    if arguments.json:
        services.terminal.json({"name": arguments.name, "revoked": True})
    else:
        services.terminal.line(f"The key `{arguments.name}` was revoked: it no longer works.")


_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Services], None]] = {
    "create": _create,
    "list": _list,
    "revoke": _revoke,
}

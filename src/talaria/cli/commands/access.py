"""`talaria pairing` and `talaria api-keys`: who may write to the agent in chats and over HTTP."""

import argparse
from collections.abc import Callable, Mapping, Sequence

from talaria.cli.services import Services
from talaria.contracts.clock import SystemClock
from talaria.contracts.stores.access import PairedPerson
from talaria.core.errors import NotFound, Refused
from talaria.core.formatting import find_zone, format_age, format_time

_SCOPES = ("chat", "agent", "read", "admin")
_KEYS_EPILOG = """\
A key is shown only when it is created; the store keeps just a digest of it.
`chat` talks to the agent as a guest, with the guests' tools and its own
conversations; `agent` talks to it as you, with all tools; `read` reads
conversations; `admin` allows everything. Every request needs a key.
"""
_PAIRING_EPILOG = """\
A stranger who writes to the agent in a private chat gets a code to give to you.
It is valid for an hour. Five wrong codes lock the network for an hour.

The sign-in page of the web app shows such a code, too: its platform is `web`.
The browser is then signed in as you, or as the person that `--person` names.
"""


class PairingCommand:
    """`talaria pairing`: approve people who wrote to the agent and browsers that show a code, and revoke access."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the actions."""
        parser.epilog = _PAIRING_EPILOG
        actions = parser.add_subparsers(dest="action", metavar="ACTION")
        parser.set_defaults(action="list")
        waiting = actions.add_parser("list", help="list pending pairing requests")
        approve = actions.add_parser("approve", help="approve a pairing code")
        refuse = actions.add_parser("refuse", help="refuse a pairing request")
        revoke = actions.add_parser("revoke", help="revoke a person's access")
        people = actions.add_parser("people", help="list approved people")
        for action in (approve, refuse, revoke):
            action.add_argument("platform", metavar="PLATFORM", help="the chat network, for example telegram; or web")
        approve.add_argument("code", metavar="CODE", help="the code that the person received, or the browser shows")
        approve.add_argument(
            "--person", metavar="NAME", default="", help="whose browser it is: a name from `people` (default: you)"
        )
        refuse.add_argument("user_id", metavar="USER", help="their id there, as `list` shows it")
        revoke.add_argument("user_id", metavar="USER", help="their id there, as `people` shows it")
        people.add_argument("platform", metavar="PLATFORM", nargs="?", help="only this network")
        for action in (waiting, approve, refuse, revoke, people):
            action.add_argument("--json", action="store_true", help="print JSON")

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Do what was asked and return the exit code."""
        _PAIRING_ACTIONS[arguments.action](arguments, services)
        return 0


class ApiKeysCommand:
    """`talaria api-keys`: manage keys of the HTTP API."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the actions."""
        parser.epilog = _KEYS_EPILOG
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

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Do what was asked and return the exit code."""
        _KEY_ACTIONS[arguments.action](arguments, services)
        return 0


def _create_key(arguments: argparse.Namespace, services: Services) -> None:
    from talaria.access.api_keys import create_key, new_token  # noqa: PLC0415 (loaded for an action: needs hashlib)

    token = new_token()
    with services.open_database() as database:
        key = database.write(lambda tx: create_key(tx, arguments.name, arguments.scope or ["chat"], token))
    if arguments.json:
        services.terminal.json({"name": key.name, "scopes": key.scopes, "key": token, "created_at": key.created_at})
        return
    services.terminal.line(token)
    services.terminal.note(f"Key `{key.name}` (scope {', '.join(key.scopes)}). It is not shown again.")


def _list_keys(arguments: argparse.Namespace, services: Services) -> None:
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


def _revoke_key(arguments: argparse.Namespace, services: Services) -> None:
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


def _list_pending(arguments: argparse.Namespace, services: Services) -> None:
    with services.open_database() as database:
        waiting = database.read(lambda tx: tx.pairing.waiting())
    now = SystemClock().now()
    rows = [(*_list_cells(one), format_age(one.since, now) if one.since else "") for one in waiting]
    _show_people(arguments, services, waiting, "ASKED", rows)
    if not waiting and services.terminal.interactive and not arguments.json:
        services.terminal.note("No pending requests. Strangers who write to the agent in a private chat get a code.")


def _list_people(arguments: argparse.Namespace, services: Services) -> None:
    with services.open_database() as database:
        people = database.read(lambda tx: tx.pairing.people(arguments.platform))
    zone = find_zone(services.settings().cli.time_zone)
    rows = [(*_list_cells(one), format_time(one.since, zone) if one.since else "") for one in people]
    _show_people(arguments, services, people, "SINCE", rows)
    if not people and services.terminal.interactive and not arguments.json:
        services.terminal.note("Nobody has been approved with a code. `access.allowed` may list more people.")


def _approve_person(arguments: argparse.Namespace, services: Services) -> None:
    from talaria.access.browsers import resolve_person  # noqa: PLC0415 (loaded for an action: needs hashlib)
    from talaria.access.pairing import WEB, approve_code  # noqa: PLC0415 (loaded for an action: needs hashlib)

    platform, owner = arguments.platform.strip().lower(), arguments.person
    if owner and platform != WEB:
        raise Refused("--person is for browsers only: `talaria pairing approve web CODE --person NAME`.")
    name = resolve_person(services.settings(), owner)
    with services.open_database() as database:
        waiting = {one.platform for one in database.read(lambda tx: tx.pairing.waiting())}
        if platform not in waiting:
            others = f" Requests are pending on {', '.join(sorted(waiting))}." if waiting else ""
            raise NotFound(f"There is no valid pairing code on {platform}.{others}")
        person = database.write(lambda tx: approve_code(tx, platform, arguments.code, person=name))
    if person is None:
        raise Refused(f"`{arguments.code}` isn't a valid code on {platform}, or it has expired.")
    if arguments.json:
        services.terminal.json(_as_data(person))
        return
    if platform == WEB:
        services.terminal.line(f"{person.name or 'The browser'} is now signed in as {name or 'you'}.")
        return
    services.terminal.line(f"{_format_person(person)} can now talk to the agent on {platform}.")
    if not services.settings().access.owners:
        services.terminal.note(
            f"If that's you, make yourself an owner: `talaria config set access.owners {platform}:{person.user_id}`"
        )


def _refuse_person(arguments: argparse.Namespace, services: Services) -> None:
    from talaria.access.pairing import refuse_request  # noqa: PLC0415 (loaded for an action: needs hashlib)

    platform, user_id = arguments.platform.strip().lower(), arguments.user_id.strip()
    with services.open_database() as database:
        database.write(lambda tx: refuse_request(tx, platform, user_id))
    if arguments.json:
        services.terminal.json({"platform": platform, "user_id": user_id, "refused": True})
    else:
        services.terminal.line(f"Refused the request of {user_id} on {platform}. Its code no longer works.")


def _revoke_person(arguments: argparse.Namespace, services: Services) -> None:
    platform, user_id = arguments.platform.strip().lower(), arguments.user_id.strip()
    with services.open_database() as database:
        people = database.read(lambda tx: tx.pairing.people(platform))
        person = next((one for one in people if one.user_id == user_id), None)
        if person is None or not database.write(lambda tx: tx.pairing.revoke(platform, user_id)):
            raise NotFound(
                f"Nobody with the id `{user_id}` is approved on {platform}. `talaria pairing people` lists who is."
            )
    if arguments.json:
        services.terminal.json(_as_data(person))
        return
    services.terminal.line(f"{_format_person(person)} can no longer talk to the agent on {platform}.")
    named = {*services.settings().access.allowed, *services.settings().access.owners}
    if f"{platform}:{user_id}" in named:
        services.terminal.note(f"But the settings still name {platform}:{user_id} in the section `access`.")


def _show_people(
    arguments: argparse.Namespace,
    services: Services,
    people: Sequence[PairedPerson],
    when: str,
    rows: Sequence[tuple[str, ...]],
) -> None:
    if arguments.json:
        services.terminal.json([_as_data(one) for one in people])
    elif rows:
        services.terminal.table(("PLATFORM", "USER", "NAME", when), rows)


def _list_cells(person: PairedPerson) -> tuple[str, str, str]:
    return person.platform, person.user_id, person.name


def _format_person(person: PairedPerson) -> str:
    return f"{person.name} ({person.user_id})" if person.name else person.user_id


def _as_data(person: PairedPerson) -> dict[str, object]:
    return {"platform": person.platform, "user_id": person.user_id, "name": person.name, "since": person.since}


_KEY_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Services], None]] = {
    "create": _create_key,
    "list": _list_keys,
    "revoke": _revoke_key,
}
_PAIRING_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Services], None]] = {
    "list": _list_pending,
    "approve": _approve_person,
    "refuse": _refuse_person,
    "revoke": _revoke_person,
    "people": _list_people,
}

"""`talaria pairing`: let people in who wrote to the agent in a chat, and shut them out again."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from talaria.cli.services import Services
from talaria.contracts.clock import SystemClock
from talaria.contracts.stores.pairing import Person
from talaria.core.errors import NotFound, Refused
from talaria.core.wording import ago, clock_time, find_zone

_EPILOG = """\
A stranger who writes to the agent in a private chat gets a code, and gives it
to you. It is good for an hour. Five wrong codes lock a network for an hour.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    parser.epilog = _EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list")
    waiting = actions.add_parser("list", help="list pending pairing requests")
    approve = actions.add_parser("approve", help="approve a pairing code")
    revoke = actions.add_parser("revoke", help="revoke a person's access")
    people = actions.add_parser("people", help="list approved people")
    for action in (approve, revoke):
        action.add_argument("platform", metavar="PLATFORM", help="the chat network, for example telegram")
    approve.add_argument("code", metavar="CODE", help="the code that the person was given")
    revoke.add_argument("user_id", metavar="USER", help="their id there, as `people` lists it")
    people.add_argument("platform", metavar="PLATFORM", nargs="?", help="only of this network")
    for action in (waiting, approve, revoke, people):
        action.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    _ACTIONS[arguments.action](arguments, services)
    return 0


def _list(arguments: argparse.Namespace, services: Services) -> None:
    with services.open_database() as database:
        waiting = database.read(lambda tx: tx.pairing.waiting())
    now = SystemClock().now()
    rows = [(*_cells(one), ago(one.since, now) if one.since else "") for one in waiting]
    _show(arguments, services, waiting, "ASKED", rows)
    if not waiting and services.terminal.interactive and not arguments.json:
        services.terminal.note("Nobody waits. Whoever writes to the agent in a private chat gets a code.")


def _people(arguments: argparse.Namespace, services: Services) -> None:
    with services.open_database() as database:
        people = database.read(lambda tx: tx.pairing.people(arguments.platform))
    zone = find_zone(services.settings().cli.time_zone)
    rows = [(*_cells(one), clock_time(one.since, zone) if one.since else "") for one in people]
    _show(arguments, services, people, "SINCE", rows)
    if not people and services.terminal.interactive and not arguments.json:
        services.terminal.note("Nobody was let in with a code. `access.allowed` may name people as well.")


def _approve(arguments: argparse.Namespace, services: Services) -> None:
    platform = arguments.platform.strip().lower()
    # Hashing is loaded for this action only: lists do not wait for it.
    pairing = import_module("talaria.sessions.pairing")
    with services.open_database() as database:
        waiting = {one.platform for one in database.read(lambda tx: tx.pairing.waiting())}
        if platform not in waiting:
            others = f" Somebody waits on {', '.join(sorted(waiting))}." if waiting else ""
            raise NotFound(f"Nobody on {platform} has a code that is still good.{others}")
        person: Person | None = database.write(lambda tx: pairing.approve_code(tx, platform, arguments.code))
    if person is None:
        raise Refused(f"`{arguments.code}` is not a code that was given to anybody on {platform}, or it is too old.")
    if arguments.json:
        services.terminal.json(_as_data(person))
        return
    services.terminal.line(f"{_called(person)} may now speak to the agent on {platform}.")
    if not services.settings().access.owners:
        services.terminal.note(
            f"If that is you: `talaria config set access.owners {platform}:{person.user_id}` makes it your agent there."
        )


def _revoke(arguments: argparse.Namespace, services: Services) -> None:
    platform, user_id = arguments.platform.strip().lower(), arguments.user_id.strip()
    with services.open_database() as database:
        people = database.read(lambda tx: tx.pairing.people(platform))
        person = next((one for one in people if one.user_id == user_id), None)
        if person is None or not database.write(lambda tx: tx.pairing.revoke(platform, user_id)):
            raise NotFound(
                f"Nobody on {platform} with the id `{user_id}` was let in; `talaria pairing people` lists who was."
            )
    if arguments.json:
        services.terminal.json(_as_data(person))
        return
    services.terminal.line(f"{_called(person)} may no longer speak to the agent on {platform}.")
    named = {*services.settings().access.allowed, *services.settings().access.owners}
    if f"{platform}:{user_id}" in named:
        services.terminal.note(f"But the settings still name {platform}:{user_id} in the section access.")


_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Services], None]] = {
    "list": _list,
    "approve": _approve,
    "revoke": _revoke,
    "people": _people,
}


def _show(
    arguments: argparse.Namespace,
    services: Services,
    people: Sequence[Person],
    when: str,
    rows: Sequence[tuple[str, ...]],
) -> None:
    if arguments.json:
        services.terminal.json([_as_data(one) for one in people])
    elif rows:
        services.terminal.table(("PLATFORM", "USER", "NAME", when), rows)


def _cells(person: Person) -> tuple[str, str, str]:
    return person.platform, person.user_id, person.name


def _called(person: Person) -> str:
    return f"{person.name} ({person.user_id})" if person.name else person.user_id


def _as_data(person: Person) -> dict[str, object]:
    return {"platform": person.platform, "user_id": person.user_id, "name": person.name, "since": person.since}

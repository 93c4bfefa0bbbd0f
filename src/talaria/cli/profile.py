"""`talaria profile`: list, create, choose and delete profiles."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from talaria.cli.arguments import completing
from talaria.cli.services import Services
from talaria.core.errors import Refused
from talaria.settings.profiles import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list")
    every = actions.add_parser("list", help="list all profiles")
    show = actions.add_parser("show", help="show where a profile keeps its files")
    create = actions.add_parser("create", help="make a new profile")
    use = actions.add_parser("use", help="make a profile the one in use")
    delete = actions.add_parser("delete", help="remove a profile with everything in it")
    path = actions.add_parser("path", help="print the folder of a profile")
    for action in (every, show):
        action.add_argument("--json", action="store_true", help="print JSON")
    for action in (show, path):
        completing(action.add_argument("name", metavar="NAME", nargs="?", help="default: that of this run"), "profiles")
    for action in (use, delete):
        completing(action.add_argument("name", metavar="NAME", help="the profile"), "profiles")
    create.add_argument("name", metavar="NAME", help="lower-case letters, digits, dashes and underscores")
    create.add_argument("--use", action="store_true", help="make it the one in use as well")
    delete.add_argument("--yes", action="store_true", help="do not ask")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    _ACTIONS[arguments.action](arguments, services)
    return 0


def _list(arguments: argparse.Namespace, services: Services) -> None:
    active = services.profiles.active_name()
    found = services.profiles.list()
    if arguments.json:
        services.terminal.json([_described(profile, active) for profile in found])
        return
    rows = [("*" if profile.name == active else "", profile.name, profile.folder) for profile in found]
    services.terminal.table(("IN USE", "NAME", "FOLDER"), rows)


def _show(arguments: argparse.Namespace, services: Services) -> None:
    described = _described(_named(arguments, services), services.profiles.active_name())
    if arguments.json:
        services.terminal.json(described)
        return
    rows = [(name.replace("_", " "), _in_words(value)) for name, value in described.items()]
    services.terminal.table(("WHAT", "VALUE"), rows)


def _create(arguments: argparse.Namespace, services: Services) -> None:
    profile = services.profiles.create(arguments.name)
    services.terminal.line(f"The profile {profile.name} was created in {profile.folder}.")
    if arguments.use:
        _use(arguments, services)
    else:
        services.terminal.note(f"`talaria profile use {profile.name}` makes it the one in use.")


def _use(arguments: argparse.Namespace, services: Services) -> None:
    profile = services.profiles.use(arguments.name)
    services.terminal.line(f"The profile in use is now {profile.name}.")
    chosen = services.environment.get("TALARIA_PROFILE")
    if chosen and chosen != profile.name:
        services.terminal.note(f"TALARIA_PROFILE is set, and it wins: in this shell {chosen} stays in use.")


def _delete(arguments: argparse.Namespace, services: Services) -> None:
    profile = services.profiles.get(arguments.name)
    question = (
        f"Delete the profile {profile.name} with all its conversations, settings and secrets in {profile.folder}?"
    )
    if not arguments.yes and not services.terminal.interactive:
        raise Refused(f"Nobody is there to confirm; `talaria profile delete {profile.name} --yes` does not ask.")
    if arguments.yes or services.terminal.confirm(question):
        services.profiles.delete(profile.name)
        services.terminal.line(f"The profile {profile.name} was deleted.")
    else:
        services.terminal.note("Nothing was deleted.")


def _path(arguments: argparse.Namespace, services: Services) -> None:
    services.terminal.line(str(_named(arguments, services).folder))


_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Services], None]] = {
    "list": _list,
    "show": _show,
    "create": _create,
    "use": _use,
    "delete": _delete,
    "path": _path,
}


def _named(arguments: argparse.Namespace, services: Services) -> Profile:
    return services.profiles.get(arguments.name) if arguments.name else services.profile


def _described(profile: Profile, active: str) -> dict[str, Any]:
    return {
        "name": profile.name,
        "in_use": profile.name == active,
        "exists": profile.exists,
        "folder": profile.folder,
        "config_file": profile.config_file,
        "secrets_file": profile.secrets_file,
        "database_file": profile.database_file,
    }


def _in_words(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)

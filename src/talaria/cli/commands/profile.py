"""`talaria profile`: list, create, choose and delete profiles."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from talaria.cli.parser import add_completion
from talaria.cli.services import Services
from talaria.core.errors import Refused
from talaria.settings.profiles import Profile


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="list")
    listing = actions.add_parser("list", help="list all profiles")
    show = actions.add_parser("show", help="show where a profile's files are")
    create = actions.add_parser("create", help="create a profile")
    use = actions.add_parser("use", help="make a profile the active one")
    delete = actions.add_parser("delete", help="delete a profile and everything in it")
    path = actions.add_parser("path", help="print the folder of a profile")
    for action in (listing, show):
        action.add_argument("--json", action="store_true", help="print JSON")
    for action in (show, path):
        add_completion(
            action.add_argument("name", metavar="NAME", nargs="?", help="default: the active profile"), "profiles"
        )
    for action in (use, delete):
        add_completion(action.add_argument("name", metavar="NAME", help="the profile"), "profiles")
    create.add_argument("name", metavar="NAME", help="lower-case letters, digits, dashes and underscores")
    create.add_argument("--use", action="store_true", help="make it the active profile, too")
    delete.add_argument("--yes", action="store_true", help="don't ask for confirmation")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    _ACTIONS[arguments.action](arguments, services)
    return 0


def _list(arguments: argparse.Namespace, services: Services) -> None:
    active = services.profiles.active_name()
    found = services.profiles.list()
    if arguments.json:
        services.terminal.json([_describe_profile(profile, active) for profile in found])
        return
    rows = [("*" if profile.name == active else "", profile.name, profile.folder) for profile in found]
    services.terminal.table(("ACTIVE", "NAME", "FOLDER"), rows)


def _show(arguments: argparse.Namespace, services: Services) -> None:
    details = _describe_profile(_find_profile(arguments, services), services.profiles.active_name())
    if arguments.json:
        services.terminal.json(details)
        return
    rows = [(name.replace("_", " "), _format_value(value)) for name, value in details.items()]
    services.terminal.table(("WHAT", "VALUE"), rows)


def _create(arguments: argparse.Namespace, services: Services) -> None:
    profile = services.profiles.create(arguments.name)
    services.terminal.line(f"Created the profile {profile.name} in {profile.folder}.")
    if arguments.use:
        _use(arguments, services)
    else:
        services.terminal.note(f"`talaria profile use {profile.name}` makes it the active profile.")


def _use(arguments: argparse.Namespace, services: Services) -> None:
    profile = services.profiles.use(arguments.name)
    services.terminal.line(f"The active profile is now {profile.name}.")
    chosen = services.environment.get("TALARIA_PROFILE")
    if chosen and chosen != profile.name:
        services.terminal.note(f"TALARIA_PROFILE is set and overrides it: this shell keeps using {chosen}.")


def _delete(arguments: argparse.Namespace, services: Services) -> None:
    profile = services.profiles.get(arguments.name)
    question = (
        f"Delete the profile {profile.name} with all its conversations, settings and secrets in {profile.folder}?"
    )
    if not arguments.yes and not services.terminal.interactive:
        raise Refused(
            f"There is no terminal to ask for confirmation. Use `talaria profile delete {profile.name} --yes`."
        )
    if arguments.yes or services.terminal.confirm(question):
        services.profiles.delete(profile.name)
        services.terminal.line(f"Deleted the profile {profile.name}.")
    else:
        services.terminal.note("Nothing was deleted.")


def _path(arguments: argparse.Namespace, services: Services) -> None:
    services.terminal.line(str(_find_profile(arguments, services).folder))


_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Services], None]] = {
    "list": _list,
    "show": _show,
    "create": _create,
    "use": _use,
    "delete": _delete,
    "path": _path,
}


def _find_profile(arguments: argparse.Namespace, services: Services) -> Profile:
    return services.profiles.get(arguments.name) if arguments.name else services.profile


def _describe_profile(profile: Profile, active: str) -> dict[str, Any]:
    return {
        "name": profile.name,
        "in_use": profile.name == active,
        "exists": profile.exists,
        "folder": profile.folder,
        "config_file": profile.config_file,
        "secrets_file": profile.secrets_file,
        "database_file": profile.database_file,
    }


def _format_value(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)

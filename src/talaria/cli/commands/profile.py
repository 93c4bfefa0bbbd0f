"""`talaria profile` and `talaria trust`: profiles, and the project folders that a profile trusts."""

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from talaria.cli.parser import add_completion
from talaria.cli.services import Services
from talaria.core.errors import NotFound, Refused
from talaria.settings.profiles import FolderTrust, Profile, find_project_files

_TRUST_EPILOG = """\
A project can contain commands (.talaria/commands) and skills (.talaria/skills).
They are ignored until you trust the folder, and again after they change.
"""


class ProfileCommand:
    """`talaria profile`: list, create, choose and delete profiles."""

    @staticmethod
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

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Do what was asked and return the exit code."""
        _ACTIONS[arguments.action](arguments, services)
        return 0


class TrustCommand:
    """`talaria trust`: trust the commands and skills of a project folder, list trusted folders, revoke one."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the arguments."""
        parser.epilog = _TRUST_EPILOG
        parser.add_argument(
            "action", nargs="?", default=".", metavar="FOLDER | list | revoke", help="the folder to trust, or an action"
        )
        parser.add_argument("folder", nargs="?", default=".", metavar="FOLDER", help="the folder to revoke")
        parser.add_argument("--json", action="store_true", help="print JSON")

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Do what was asked and return the exit code."""
        folder_trust = FolderTrust(services.profile.folder)
        if arguments.action == "list":
            _list_folders(folder_trust, arguments, services)
        elif arguments.action == "revoke":
            if not folder_trust.revoke(Path(arguments.folder)):
                raise NotFound(f"{arguments.folder} isn't trusted. `talaria trust list` shows the folders that are.")
            services.terminal.note("Its commands and skills are ignored from now on.")
        else:
            _trust_folder(folder_trust, Path(arguments.action), services)
        return 0


def _list_profiles(arguments: argparse.Namespace, services: Services) -> None:
    active = services.profiles.active_name()
    found = services.profiles.list()
    if arguments.json:
        services.terminal.json([_describe_profile(profile, active) for profile in found])
        return
    rows = [("*" if profile.name == active else "", profile.name, profile.folder) for profile in found]
    services.terminal.table(("ACTIVE", "NAME", "FOLDER"), rows)


def _show_profile(arguments: argparse.Namespace, services: Services) -> None:
    details = _describe_profile(_find_profile(arguments, services), services.profiles.active_name())
    if arguments.json:
        services.terminal.json(details)
        return
    rows = [(name.replace("_", " "), _format_value(value)) for name, value in details.items()]
    services.terminal.table(("WHAT", "VALUE"), rows)


def _create_profile(arguments: argparse.Namespace, services: Services) -> None:
    profile = services.profiles.create(arguments.name)
    services.terminal.line(f"Created the profile {profile.name} in {profile.folder}.")
    if arguments.use:
        _use_profile(arguments, services)
    else:
        services.terminal.note(f"`talaria profile use {profile.name}` makes it the active profile.")


def _use_profile(arguments: argparse.Namespace, services: Services) -> None:
    profile = services.profiles.use(arguments.name)
    services.terminal.line(f"The active profile is now {profile.name}.")
    chosen = services.environment.get("TALARIA_PROFILE")
    if chosen and chosen != profile.name:
        services.terminal.note(f"TALARIA_PROFILE is set and overrides it: this shell keeps using {chosen}.")


def _delete_profile(arguments: argparse.Namespace, services: Services) -> None:
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


def _print_path(arguments: argparse.Namespace, services: Services) -> None:
    services.terminal.line(str(_find_profile(arguments, services).folder))


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


def _list_folders(folder_trust: FolderTrust, arguments: argparse.Namespace, services: Services) -> None:
    folders = [(folder, folder_trust.is_trusted(Path(folder))) for folder in sorted(folder_trust.folders())]
    if arguments.json:
        services.terminal.json([{"folder": folder, "unchanged": unchanged} for folder, unchanged in folders])
    else:
        rows = [(folder, "trusted" if unchanged else "changed since then, ignored") for folder, unchanged in folders]
        services.terminal.table(("FOLDER", "STATE"), rows)


def _trust_folder(folder_trust: FolderTrust, folder: Path, services: Services) -> None:
    if not folder.is_dir():
        raise NotFound(f"There is no folder {folder}.")
    files = find_project_files(folder)
    if not files:
        raise Refused(f"{folder} contains no commands or skills, so there is nothing to trust.")
    for file in files:
        services.terminal.note(f"  {file.relative_to(folder)}")
    services.terminal.note(f"Trusted {folder_trust.trust(folder)}. You'll be asked again when these files change.")


_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Services], None]] = {
    "list": _list_profiles,
    "show": _show_profile,
    "create": _create_profile,
    "use": _use_profile,
    "delete": _delete_profile,
    "path": _print_path,
}

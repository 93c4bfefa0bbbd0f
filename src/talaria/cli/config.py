"""`talaria config`: show, change and check the settings of a profile."""

import argparse
import getpass
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from talaria.cli.arguments import completing
from talaria.cli.gateway_remark import remark_gateway
from talaria.cli.services import Services
from talaria.core.errors import NotFound, Refused
from talaria.settings.faults import Fault, nearest, unknown
from talaria.settings.files import write_file
from talaria.settings.keys import dotted, split_key, variable
from talaria.settings.load import Loaded, load
from talaria.settings.secrets import KNOWN_SECRETS, Secrets, mask, read_secrets, remove_secret, store_secret
from talaria.settings.template import template
from talaria.settings.words import value_as_text

if TYPE_CHECKING:
    from talaria.settings.edit import Edit

# Brings tomlkit along, which takes longer to load than `config get` takes to answer.
_EDITING = "talaria.settings.edit"
_EDITORS = ("sensible-editor", "nano", "vim", "vi")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the actions."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    path = actions.add_parser("path", help="print where the settings are stored")
    show = actions.add_parser("show", help="list every setting with its value and where that comes from")
    show.add_argument("--changed", action="store_true", help="only settings that differ from their default")
    get = actions.add_parser("get", help="print one setting")
    check = actions.add_parser("check", help="list all problems; exit code 1 if there are any")
    for action in (path, show, get, check):
        action.add_argument("--json", action="store_true", help="print JSON")
    change = actions.add_parser("set", help="change one setting, or store a secret")
    unset = actions.add_parser("unset", help="restore the default, or remove a secret")
    for action in (get, change, unset):
        key = action.add_argument("key", metavar="KEY", help="for example store.url, or the name of a secret")
        completing(key, "settings")
    change.add_argument("value", metavar="VALUE", help="the new value; - reads it from standard input")
    actions.add_parser("edit", help="open the file in your editor, then check it")


def run(arguments: argparse.Namespace, services: Services) -> int:
    """Do what was asked and return the exit code."""
    return _ACTIONS[arguments.action](arguments, services)


class Entry(Struct, frozen=True):
    """One setting or secret as it is shown."""

    key: str
    value: Any
    text: str
    origin: str
    secret: bool

    def public(self) -> dict[str, Any]:
        """The entry for JSON: typed, but without what is secret."""
        return {"key": self.key, "value": self.text if self.secret else self.value, "origin": self.origin}


def _path(arguments: argparse.Namespace, services: Services) -> int:
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
    loaded, secrets = _read(services)
    entries = [entry for entry in _entries(loaded, secrets) if not arguments.changed or entry.origin != "default"]
    if arguments.json:
        services.terminal.json([entry.public() for entry in entries])
    else:
        rows = [(entry.key, entry.text, _short_origin(entry.origin, services)) for entry in entries]
        services.terminal.table(("KEY", "VALUE", "ORIGIN"), rows)
    for fault in (*loaded.faults, *secrets.faults):
        services.terminal.note(services.terminal.styled(str(fault), "yellow"))
    return 0


def _get(arguments: argparse.Namespace, services: Services) -> int:
    loaded, secrets = _read(services)
    wanted = dotted(split_key(arguments.key))
    entries = list(_entries(loaded, secrets))
    entry = next((entry for entry in entries if entry.key == wanted), None) or _entry_of_table(entries, wanted)
    if entry is None:
        raise NotFound(_no_such_key(arguments.key, loaded, secrets))
    if arguments.json:
        services.terminal.json(entry.public())
    else:
        services.terminal.line(entry.text)
    return 0


def _entry_of_table(entries: list[Entry], wanted: str) -> Entry | None:
    """Return one entry of a setting that holds a table of values."""
    table, _, name = wanted.rpartition(".")
    for entry in entries:
        if entry.key == table and isinstance(entry.value, Mapping) and name in entry.value:
            value = entry.value[name]
            text = entry.text if entry.secret else value_as_text(value)
            return Entry(wanted, value, text, entry.origin, entry.secret)
    return None


def _set(arguments: argparse.Namespace, services: Services) -> int:
    if not _names_secret(arguments.key):
        edit: Edit = import_module(_EDITING).set_value(services.profile, arguments.key, _value(arguments, services))
        services.terminal.line(f"{edit.key} = {edit.shown}, written to {services.profile.config_file}.")
        _remark_edit(edit, services)
        return 0
    name = str(arguments.key)
    store_secret(services.profile, name, _value(arguments, services))
    services.terminal.line(f"{name} was written to {services.profile.secrets_file}.")
    if all(known.name != name for known in KNOWN_SECRETS) and name not in _named_secrets(services):
        services.terminal.note(_unused(name))
    remark_gateway(services, live=False)
    if services.environment.get(name):
        services.terminal.note(f"The environment variable {name} is set and wins over the file.")
    return 0


def _unset(arguments: argparse.Namespace, services: Services) -> int:
    if _names_secret(arguments.key):
        remove_secret(services.profile, arguments.key)
        services.terminal.line(f"{arguments.key} was removed from {services.profile.secrets_file}.")
        return 0
    edit: Edit = import_module(_EDITING).unset_value(services.profile, arguments.key)
    services.terminal.line(f"{edit.key} was removed from {services.profile.config_file}.")
    _remark_edit(edit, services)
    return 0


def _edit(_arguments: argparse.Namespace, services: Services) -> int:
    file = services.profile.config_file
    if not file.exists():
        services.profile.prepare()
        write_file(file, template(load(services.profile, {}).model))
    while True:
        _run_editor(_editor(services.environment), file)
        faults = _list_faults(services)
        if not faults:
            return 0
        if not services.terminal.confirm("Edit again?"):
            return 1


def _check(arguments: argparse.Namespace, services: Services) -> int:
    if not arguments.json:
        return 1 if _list_faults(services) else 0
    faults = _faults(services)
    services.terminal.json([{"sentence": str(fault), **_parts(fault)} for fault in faults])
    return 1 if faults else 0


_ACTIONS: Mapping[str, Callable[[argparse.Namespace, Services], int]] = {
    "path": _path,
    "show": _show,
    "get": _get,
    "set": _set,
    "unset": _unset,
    "edit": _edit,
    "check": _check,
}


def _read(services: Services) -> tuple[Loaded, Secrets]:
    return load(services.profile, services.environment), read_secrets(services.profile, services.environment)


def _entries(loaded: Loaded, secrets: Secrets) -> Iterator[Entry]:
    for field, value in loaded.values():
        yield Entry(field.key, value, field.shown(value), str(loaded.origin(field.path)), field.secret)
    for name in secrets.names():
        place, text = secrets.place(name), mask(secrets.get(name) or "")
        yield Entry(name, text, text, str(place), secret=True)


def _short_origin(origin: str, services: Services) -> str:
    """Return where a value comes from, files of the profile by their name alone."""
    return origin.removeprefix(f"{services.profile.folder}{os.sep}")


def _no_such_key(key: str, loaded: Loaded, secrets: Secrets) -> str:
    if _names_secret(key):
        return f"`{key}` is not set; `talaria config set {key} -` stores it."
    known = [field.key for field, _ in loaded.values()] + list(secrets.names())
    return unknown("key", key, known).problem


def _names_secret(key: str) -> bool:
    return key.isupper() and "." not in key


def _value(arguments: argparse.Namespace, services: Services) -> str:
    if arguments.value != "-":
        return str(arguments.value)
    if services.terminal.interactive:
        return getpass.getpass(f"{arguments.key}: ")
    return sys.stdin.read().rstrip("\r\n")


def _remark_edit(edit: "Edit", services: Services) -> None:
    remark_gateway(services, live=edit.live)
    if edit.field and services.environment.get(variable(edit.field.path)) is not None:
        services.terminal.note(f"The environment variable {edit.field.variable} is set and wins over the file.")


def _named_secrets(services: Services) -> set[str]:
    """Return the secrets that settings of providers name."""
    accounts = load(services.profile, services.environment).settings.providers.values()
    return {name for account in accounts for name in (account.key, *account.keys) if name}


def _unused(name: str) -> str:
    close = nearest(name, [known.name for known in KNOWN_SECRETS], similarity=0.9)
    hint = f"Did you mean `{close}`?" if close else f"`talaria config set providers.NAME.key {name}` does."
    return f"No setting uses it yet. {hint}"


def _faults(services: Services) -> tuple[Fault, ...]:
    loaded, secrets = _read(services)
    return loaded.faults + secrets.faults


def _list_faults(services: Services) -> tuple[Fault, ...]:
    faults = _faults(services)
    for fault in faults:
        services.terminal.line(services.terminal.styled(str(fault), "red"))
    if not faults:
        services.terminal.line(services.terminal.styled("No faults.", "green"))
    return faults


def _parts(fault: Fault) -> dict[str, Any]:
    names = ("file", "line", "key", "expected", "found", "nearest")
    return {name: getattr(fault, name) or None for name in names}


def _editor(environment: Mapping[str, str]) -> list[str]:
    chosen = environment.get("VISUAL") or environment.get("EDITOR")
    if chosen:
        return shlex.split(chosen)
    found = next((editor for editor in _EDITORS if shutil.which(editor)), None)
    if found is None:
        raise Refused("No editor was found; name one in the environment variable EDITOR.")
    return [found]


def _run_editor(editor: list[str], file: Path) -> None:
    try:
        subprocess.run([*editor, file], check=True)
    except OSError as error:
        raise Refused(f"The editor `{shlex.join(editor)}` cannot be started: {error.strerror}.") from error
    except subprocess.CalledProcessError as error:
        raise Refused(f"The editor `{shlex.join(editor)}` ended with exit code {error.returncode}.") from error

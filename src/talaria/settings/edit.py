"""Edits of keys in a config.toml that keep everything else, including comments."""

import hashlib
import tomllib
from collections.abc import Mapping, MutableMapping
from copy import deepcopy
from typing import Any

import tomlkit
from msgspec import Struct
from tomlkit.exceptions import TOMLKitError

from talaria.core.errors import NotFound, Refused
from talaria.settings.atomic_files import lock_folder, write_file
from talaria.settings.config_file import ConfigFile, read_source
from talaria.settings.errors import SettingsInvalid, build_unknown_fault, build_wrong_value_fault
from talaria.settings.load import interpret
from talaria.settings.profiles import Profile
from talaria.settings.schema import NO_SECTIONS, Key, SchemaField, Sections, SettingsSchema, format_key, split_key
from talaria.settings.value_text import parse_value

Table = MutableMapping[str, Any]


class FileChanged(Refused):
    """The file has changed since it was read, so that a change based on the old text isn't written."""


class SettingEdit(Struct, frozen=True):
    """Change to a setting; without a field, an unknown key was removed."""

    key: str
    field: SchemaField | None
    shown: str = ""

    @property
    def live(self) -> bool:
        """Return whether a running process applies the change at once."""
        return self.field is not None and self.field.live


def set_value(profile: Profile, key: str, text: str, sections: Sections = NO_SECTIONS) -> SettingEdit:
    """Set a key to the value of ``text``; raises without writing if it is invalid."""
    field = _find_field(key, SettingsSchema(sections))
    value = parse_value(text, field.annotation)
    if not field.accepts(value):
        raise SettingsInvalid([build_wrong_value_fault(field.key, field.expected, field.found(value))])
    with lock_folder(profile.folder):
        source = _read_valid_source(profile)
        document = tomlkit.parse(source.text)
        _put(document, field.path, value)
        expected_table = deepcopy(source.table)
        _put(expected_table, field.path, value)
        _write(source, document, expected_table, sections)
    return SettingEdit(field.key, field, field.shown(value))


def file_version(text: str) -> str:
    """Return the version of a file's text: equal texts have equal versions."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_version(source: ConfigFile, version: str) -> None:
    """Raise `FileChanged` unless the file still has this version."""
    if file_version(source.text) != version:
        raise FileChanged("The settings were changed in the meantime. Load them again, then repeat your change.")


def edit_values(
    profile: Profile, values: Mapping[str, Any], version: str, sections: Sections = NO_SECTIONS
) -> list[SettingEdit]:
    """Set several keys at once, or none of them if one is invalid.

    ``None`` resets a key or removes a table. Text is parsed as on a command line. A default is removed
    from the file. Raises `FileChanged` if the file no longer has ``version``, and `SettingsInvalid` with the faults of
    all values.
    """
    changes = _parse_edits(values, SettingsSchema(sections))
    with lock_folder(profile.folder):
        source = _read_valid_source(profile)
        check_version(source, version)
        document, expected_table = tomlkit.parse(source.text), deepcopy(source.table)
        for path, _, value in changes:
            for table in (document, expected_table):
                if value is None:
                    _remove(table, path)
                else:
                    _put(table, path, value)
        _write(source, document, expected_table, sections)
    return [
        SettingEdit(format_key(path), field, field.shown(value) if field and value is not None else "")
        for path, field, value in changes
    ]


def _parse_edits(values: Mapping[str, Any], model: SettingsSchema) -> list[tuple[Key, SchemaField | None, Any]]:
    changes: list[tuple[Key, SchemaField | None, Any]] = []
    faults = []
    for key, given in values.items():
        path = split_key(key)
        if given is None:
            known = model.find(path)
            changes.append((path, known if isinstance(known, SchemaField) else None, None))
            continue
        field = _find_field(key, model)
        value = parse_value(given, field.annotation) if isinstance(given, str) else given
        if not field.accepts(value):
            faults.append(build_wrong_value_fault(field.key, field.expected, field.found(value)))
        changes.append((path, field, None if value == _to_plain(field.default) else value))
    if faults:
        raise SettingsInvalid(faults)
    return changes


def _to_plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def unset_value(profile: Profile, key: str, sections: Sections = NO_SECTIONS) -> SettingEdit:
    """Remove a key from the file, so that its default applies; also works for unknown keys."""
    path = split_key(key)
    with lock_folder(profile.folder):
        source = _read_valid_source(profile)
        expected_table = deepcopy(source.table)
        if not _remove(expected_table, path):
            known = SettingsSchema(sections).find(path)
            fault = build_unknown_fault("key", key, [field.key for field in SettingsSchema(sections).fields()])
            raise NotFound(f"`{key}` is not set in {source.path}." if known else fault.problem)
        document = tomlkit.parse(source.text)
        _remove(document, path)
        _write(source, document, expected_table, sections)
    known = SettingsSchema(sections).find(path)
    return SettingEdit(format_key(path), known if isinstance(known, SchemaField) else None)


def _find_field(key: str, model: SettingsSchema) -> SchemaField:
    known = model.find(split_key(key))
    if isinstance(known, SchemaField):
        return known
    fault = build_unknown_fault("key", key, [field.key for field in model.fields()])
    raise NotFound(f"`{key}` is a table. Name a key in it." if known else fault.problem)


def _read_valid_source(profile: Profile) -> ConfigFile:
    source = read_source(profile.config_file)
    if source.fault:
        raise SettingsInvalid([source.fault])
    return source


def _put(table: Table, path: Key, value: Any) -> None:
    for name in path[:-1]:
        if name not in table:
            table[name] = tomlkit.table() if isinstance(table, tomlkit.container.Container) else {}
        table = table[name]
        if not isinstance(table, MutableMapping):
            raise Refused(f"`{name}` isn't a table in config.toml. Fix it with `talaria config edit`.")
    table[path[-1]] = value


def _remove(table: Table, path: Key) -> bool:
    for name in path[:-1]:
        below = table.get(name)
        if not isinstance(below, MutableMapping):
            return False
        table = below
    return table.pop(path[-1], None) is not None if path else False


def _without_empty(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table without empty ones: the text of a group ends with its last table."""
    inner = {key: _without_empty(value) if isinstance(value, Mapping) else value for key, value in table.items()}
    return {key: value for key, value in inner.items() if value != {}}


def _write(source: ConfigFile, document: tomlkit.TOMLDocument, expected_table: Table, sections: Sections) -> None:
    try:
        text = tomlkit.dumps(document)
        matches = _without_empty(tomllib.loads(text)) == _without_empty(expected_table)
    except (TOMLKitError, tomllib.TOMLDecodeError):
        matches = False
    if not matches:
        raise Refused(f"{source.path} is written in a way that can't be changed safely. Use `talaria config edit`.")
    before = {fault.problem for fault in interpret(source, {}, sections).faults}
    after = interpret(ConfigFile(source.path, text), {}, sections).faults
    new = [fault for fault in after if fault.problem not in before]
    if new:
        raise SettingsInvalid(new)
    write_file(source.path, text)

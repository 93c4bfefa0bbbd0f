"""Edits of a config.toml that keep everything else: single keys, or its text in an editor with masked secrets."""

import hashlib
import tomllib
from collections.abc import Iterator, Mapping, MutableMapping
from copy import deepcopy
from difflib import unified_diff
from typing import Any

import tomlkit
from msgspec import Struct
from tomlkit.exceptions import TOMLKitError

from talaria.core.errors import NotFound, Refused
from talaria.settings.atomic_files import lock_folder, write_file
from talaria.settings.config_file import ConfigFile, read_source
from talaria.settings.errors import Fault, SettingsInvalid, build_unknown_fault, build_wrong_value_fault
from talaria.settings.load import interpret
from talaria.settings.profiles import Profile
from talaria.settings.schema import NO_SECTIONS, Key, SchemaField, Sections, SettingsSchema, format_key, split_key
from talaria.settings.value_text import parse_value

Table = MutableMapping[str, Any]
_MASK = "****"


class SettingEdit(Struct, frozen=True):
    """Change to a setting; without a field, an unknown key was removed."""

    key: str
    field: SchemaField | None
    shown: str = ""

    @property
    def live(self) -> bool:
        """Return whether a running process applies the change at once."""
        return self.field is not None and self.field.live


class FileChanged(Refused):
    """The file has changed since it was read, so that a change based on the old text isn't written."""


def set_value(profile: Profile, key: str, text: str, sections: Sections = NO_SECTIONS) -> SettingEdit:
    """Set a key to the value of ``text``; raises without writing if it is invalid."""
    field = _find_field(key, SettingsSchema(sections))
    value = parse_value(text, field.annotation)
    if not field.accepts(value):
        raise SettingsInvalid([build_wrong_value_fault(field.key, field.expected, field.describe_value(value))])
    with lock_folder(profile.folder):
        source = _read_valid_source(profile)
        document = tomlkit.parse(source.text)
        _put_value(document, field.path, value)
        expected_table = deepcopy(source.table)
        _put_value(expected_table, field.path, value)
        _write_document(source, document, expected_table, sections)
    return SettingEdit(field.key, field, field.format_value(value))


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
                    _remove_value(table, path)
                else:
                    _put_value(table, path, value)
        _write_document(source, document, expected_table, sections)
    return [
        SettingEdit(format_key(path), field, field.format_value(value) if field and value is not None else "")
        for path, field, value in changes
    ]


def unset_value(profile: Profile, key: str, sections: Sections = NO_SECTIONS) -> SettingEdit:
    """Remove a key from the file, so that its default applies; also works for unknown keys."""
    path = split_key(key)
    with lock_folder(profile.folder):
        source = _read_valid_source(profile)
        expected_table = deepcopy(source.table)
        if not _remove_value(expected_table, path):
            known = SettingsSchema(sections).find(path)
            fault = build_unknown_fault("key", key, [field.key for field in SettingsSchema(sections).fields()])
            raise NotFound(f"`{key}` is not set in {source.path}." if known else fault.problem)
        document = tomlkit.parse(source.text)
        _remove_value(document, path)
        _write_document(source, document, expected_table, sections)
    known = SettingsSchema(sections).find(path)
    return SettingEdit(format_key(path), known if isinstance(known, SchemaField) else None)


def compute_file_version(text: str) -> str:
    """Return the version of a file's text: equal texts have equal versions."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def check_version(source: ConfigFile, version: str) -> None:
    """Raise `FileChanged` unless the file still has this version."""
    if compute_file_version(source.text) != version:
        raise FileChanged("The settings were changed in the meantime. Load them again, then repeat your change.")


class ConfigText(Struct, frozen=True):
    """The text with masked secrets, and the version of the file; ``fault`` is set if the file can't be read."""

    text: str
    version: str
    fault: Fault | None = None


class CheckedText(Struct, frozen=True):
    """Effect of saving a text: the faults that prevent it, and the lines that change."""

    faults: tuple[Fault, ...]
    diff: tuple[str, ...]


def read_text(profile: Profile, sections: Sections = NO_SECTIONS) -> ConfigText:
    """Return the text of the profile's file for an editor."""
    source = read_source(profile.config_file)
    return ConfigText(_mask_text(source, sections), compute_file_version(source.text), source.fault)


def check_text(profile: Profile, text: str, sections: Sections = NO_SECTIONS) -> CheckedText:
    """Return what saving this text would do; the lines of the comparison have masked secrets."""
    source = read_source(profile.config_file)
    faults = interpret(_restore_secrets(source, text, sections), {}, sections).faults
    return CheckedText((*_find_masked(source, text, sections), *faults), _compare_texts(source, text, sections))


def save_text(profile: Profile, text: str, version: str, sections: Sections = NO_SECTIONS) -> None:
    """Replace the profile's file.

    Raises `FileChanged` if it no longer has ``version``, and `SettingsInvalid` with the faults of the text.
    """
    with lock_folder(profile.folder):
        source = read_source(profile.config_file)
        check_version(source, version)
        restored = _restore_secrets(source, text, sections)
        faults = (*_find_masked(source, text, sections), *interpret(restored, {}, sections).faults)
        if faults:
            raise SettingsInvalid(faults)
        write_file(source.path, restored.text)


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
            faults.append(build_wrong_value_fault(field.key, field.expected, field.describe_value(value)))
        changes.append((path, field, None if value == _to_plain(field.default) else value))
    if faults:
        raise SettingsInvalid(faults)
    return changes


def _to_plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


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


def _put_value(table: Table, path: Key, value: Any) -> None:
    for name in path[:-1]:
        if name not in table:
            table[name] = tomlkit.table() if isinstance(table, tomlkit.container.Container) else {}
        table = table[name]
        if not isinstance(table, MutableMapping):
            raise Refused(f"`{name}` isn't a table in config.toml. Fix it with `talaria config edit`.")
    table[path[-1]] = value


def _remove_value(table: Table, path: Key) -> bool:
    for name in path[:-1]:
        below = table.get(name)
        if not isinstance(below, MutableMapping):
            return False
        table = below
    return table.pop(path[-1], None) is not None if path else False


def _drop_empty_tables(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table without empty ones: the text of a group ends with its last table."""
    inner = {key: _drop_empty_tables(value) if isinstance(value, Mapping) else value for key, value in table.items()}
    return {key: value for key, value in inner.items() if value != {}}


def _write_document(
    source: ConfigFile, document: tomlkit.TOMLDocument, expected_table: Table, sections: Sections
) -> None:
    try:
        text = tomlkit.dumps(document)
        matches = _drop_empty_tables(tomllib.loads(text)) == _drop_empty_tables(expected_table)
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


def _compare_texts(source: ConfigFile, text: str, sections: Sections) -> tuple[str, ...]:
    before, after = _mask_text(source, sections).splitlines(), text.splitlines()
    return tuple(unified_diff(before, after, lineterm="", n=2))[2:]


def _mask_text(source: ConfigFile, sections: Sections) -> str:
    values = {path: masked for path, value, masked in _list_secrets(source, sections) if masked != value}
    return _replace_value(source.text, values) if values else source.text


def _restore_secrets(source: ConfigFile, text: str, sections: Sections) -> ConfigFile:
    """Return the edited text with the secrets of the file where it still has their masks."""
    changed = ConfigFile(source.path, text)
    values = {
        path: value
        for path, value, masked in _list_secrets(source, sections)
        if masked != value and _get_value(changed.table, path) == masked
    }
    return ConfigFile(source.path, _replace_value(text, values)) if values else changed


def _find_masked(source: ConfigFile, text: str, sections: Sections) -> Iterator[Fault]:
    """Yield a fault for each mask that stands for no secret of the file."""
    restored = _restore_secrets(source, text, sections)
    for path, value, _ in _list_secrets(restored, sections):
        if _MASK in value:
            location = restored.locate(path)
            problem = f"`{format_key(path)}` has a masked value. Type the whole value."
            yield Fault(problem=problem, file=location.file, line=location.line, key=format_key(path))


def _list_secrets(source: ConfigFile, sections: Sections) -> Iterator[tuple[Key, str, str]]:
    """Yield each text in the file that may hold a secret, with its path and how it is shown."""
    for field, _ in interpret(source, {}, sections).values():
        value = _get_value(source.table, field.path) if field.secret else None
        if isinstance(value, str):
            yield field.path, value, field.format_value(value)
        elif isinstance(value, Mapping):
            texts = {name: one for name, one in value.items() if isinstance(one, str) and one}
            yield from (((*field.path, name), one, _MASK) for name, one in texts.items())


def _get_value(table: Mapping[str, Any], path: Key) -> Any:
    at: Any = table
    for name in path:
        at = at.get(name) if isinstance(at, Mapping) else None
    return at


def _replace_value(text: str, values: Mapping[Key, str]) -> str:
    """Return a text with other values for some keys; everything else stays. An unreadable text is returned as it is."""
    try:
        document = tomlkit.parse(text)
    except TOMLKitError:
        return text
    for path, value in values.items():
        table: Any = document
        for name in path[:-1]:
            table = table[name]
        table[path[-1]] = value
    return tomlkit.dumps(document)

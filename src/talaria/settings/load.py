"""Loading of settings: defaults, then config.toml, then the environment, with all faults at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from talaria.settings.config_file import ConfigFile, read_source
from talaria.settings.errors import (
    Fault,
    SettingsInvalid,
    SourceLocation,
    build_missing_key_fault,
    build_unknown_fault,
    build_wrong_value_fault,
)
from talaria.settings.model import Settings
from talaria.settings.profiles import Profile
from talaria.settings.schema import (
    ANY_NAME,
    NO_SECTIONS,
    VARIABLE_PREFIX,
    Key,
    SchemaField,
    SchemaTable,
    Sections,
    SettingsSchema,
    format_key,
    named_type,
    split_key,
    variable,
    variable_part,
)
from talaria.settings.value_text import describe_value, parse_value


class EnvironmentOverrides(Struct, frozen=True):
    """Overrides from the environment as a table like that of a file, with each key's variable."""

    table: dict[str, Any] = {}
    variables: dict[Key, str] = {}
    faults: list[Fault] = []

    def locate(self, path: Key) -> SourceLocation:
        """Return the variable that sets a key."""
        return _locate_variable(self.variables.get(path, variable(path)))


def read_overrides(
    environment: Mapping[str, str], model: SettingsSchema, table: Mapping[str, Any]
) -> EnvironmentOverrides:
    """Return all overrides; ``table`` gives the spelling of named tables that the file has."""
    overrides = EnvironmentOverrides()
    for name in sorted(name for name in environment if name.startswith(VARIABLE_PREFIX)):
        known = _find(name.removeprefix(VARIABLE_PREFIX).split("__"), model.root, table)
        if known is None:
            overrides.faults.append(_build_variable_fault(name, model))
        else:
            overrides.variables[known.path] = name
            _put(overrides.table, known.path, parse_value(environment[name], known.annotation))
    return overrides


def _find(parts: list[str], branch: SchemaTable, table: Any) -> SchemaField | None:
    below = table if isinstance(table, Mapping) else {}
    names = [*branch.children, *below]
    name = next((name for name in names if variable_part(name) == parts[0]), parts[0].lower())
    child = branch.child(name) if name not in {"", ANY_NAME} else None
    if isinstance(child, SchemaTable):
        return _find(parts[1:], child, below.get(name)) if parts[1:] else None
    return None if parts[1:] else child


def _put(table: dict[str, Any], path: Key, value: Any) -> None:
    for name in path[:-1]:
        table = table.setdefault(name, {})
    table[path[-1]] = value


def _build_variable_fault(name: str, model: SettingsSchema) -> Fault:
    guess = name.removeprefix(VARIABLE_PREFIX).replace("__", ".").lower()
    close = model.find_nearest_key(guess)
    nearest = variable(split_key(close)) if close else ""
    help_ = f"the nearest is `{nearest}`" if close else "`talaria config show` lists them all"
    location = _locate_variable(name)
    return Fault(
        problem=f"`{name}` doesn't match any setting; {help_}.", file=location.file, key=guess, nearest=nearest
    )


def _locate_variable(name: str) -> SourceLocation:
    return SourceLocation(f"environment variable {name}")


Table = dict[str, Any]
S = TypeVar("S")


class ValueOrigin(msgspec.Struct, frozen=True):
    """Origin of a value; without a location it is the default."""

    location: SourceLocation | None = None

    def __str__(self) -> str:
        return "default" if self.location is None else str(self.location)


class LoadedSettings(msgspec.Struct, frozen=True):
    """Loaded settings; with faults, ``settings`` has the valid values and defaults for the rest."""

    settings: Settings
    faults: tuple[Fault, ...]
    model: SettingsSchema
    source: ConfigFile
    given: Table
    overrides: EnvironmentOverrides
    sections: Mapping[str, Any]

    def section(self, name: str, kind: type[S]) -> S:
        """Return the section ``name`` of type ``kind``; its defaults if it is not set."""
        found = self.sections.get(name)
        return kind() if found is None else cast("S", found)

    def values(self) -> Iterator[tuple[SchemaField, Any]]:
        """Yield all keys with their values, by section."""
        for name, kind in self.model.sections.items():
            branch = SchemaTable(tuple(name.split(".")), NO_SECTIONS, kind)
            yield from branch.values(self.sections.get(name) or kind())

    def origin(self, path: Key) -> ValueOrigin:
        """Return the origin of a key's value."""
        if path in self.overrides.variables:
            return ValueOrigin(self.overrides.locate(path))
        at: Any = self.given
        for name in path:
            if not isinstance(at, dict) or name not in at:
                return ValueOrigin()
            at = at[name]
        return ValueOrigin(self.source.locate(path))


def load(profile: Profile, environment: Mapping[str, str], sections: Sections = NO_SECTIONS) -> LoadedSettings:
    """Load the settings and collect all faults.

    ``sections`` are the tables that other parts of the program own; each of their keys has a default.
    """
    return interpret(read_source(profile.config_file), environment, sections)


def load_settings(profile: Profile, environment: Mapping[str, str], sections: Sections = NO_SECTIONS) -> Settings:
    """Return the settings of a profile; raises `SettingsInvalid` with all faults."""
    loaded = load(profile, environment, sections)
    if loaded.faults:
        raise SettingsInvalid(loaded.faults)
    return loaded.settings


def interpret(source: ConfigFile, environment: Mapping[str, str], sections: Sections = NO_SECTIONS) -> LoadedSettings:
    """Return the settings for a configuration text and the overrides of an environment."""
    return _SettingsReader(source, environment, SettingsSchema(sections)).finish()


class _SettingsReader:
    def __init__(self, source: ConfigFile, environment: Mapping[str, str], model: SettingsSchema) -> None:
        self._source = source
        self._model = model
        self._faults = [source.fault] if source.fault else []
        self._seen: set[Key] = set()
        self._overrides = read_overrides(environment, model, source.table)
        self._faults += self._overrides.faults

    def finish(self) -> LoadedSettings:
        given = self._check_table(self._source.table, self._model.root, self._source.locate)
        merged = _merge(given, self._check_table(self._overrides.table, self._model.root, self._overrides.locate))
        self._find_missing(merged, self._model.root)
        built = {name: value for name in self._model.sections if (value := self._build(name, merged)) is not None}
        core = {name: built[name] for name in Settings.__struct_fields__ if name in built}
        return LoadedSettings(
            settings=Settings(**core),
            faults=tuple(self._faults),
            model=self._model,
            source=self._source,
            given=given,
            overrides=self._overrides,
            sections=built,
        )

    def _check_table(self, table: Table, branch: SchemaTable, locate: Callable[[Key], SourceLocation]) -> Table:
        """Return the valid part of ``table``; the rest becomes faults."""
        valid: Table = {}
        for name, value in table.items():
            path, known = (*branch.path, name), branch.child(name)
            if known is None:
                self._faults.append(_build_key_fault(path, value, branch, self._model, locate(path)))
            elif isinstance(known, SchemaTable):
                if isinstance(value, dict):
                    valid[name] = self._check_table(value, known, locate)
                else:
                    self._faults.append(
                        build_wrong_value_fault(known.key, "a table", describe_value(value), locate(path))
                    )
            else:
                self._seen.add(path)
                if known.accepts(value):
                    valid[name] = value
                else:
                    self._faults.append(
                        build_wrong_value_fault(known.key, known.expected, known.describe_value(value), locate(path))
                    )
        return valid

    def _find_missing(self, table: Table, branch: SchemaTable) -> None:
        for name, value in table.items():
            child = branch.child(name)
            if isinstance(child, SchemaTable):
                self._find_missing(value, child)
        for child in branch.own.values():
            if isinstance(child, SchemaField) and child.required and child.path not in self._seen:
                self._faults.append(
                    build_missing_key_fault(child.key, child.expected, self._source.locate(branch.path))
                )

    def _build(self, name: str, given: Table) -> Any:
        """Return the section ``name``; ``None`` if it is not set or has no valid value."""
        path = tuple(name.split("."))
        table = given
        for part in path:
            table = table.get(part, {})
        if not table:
            return None
        try:
            return msgspec.convert(_select_section_keys(name, table, self._model.sections), self._model.sections[name])
        except msgspec.ValidationError as error:
            self._add_section_fault(path, str(error))
            return None

    def _add_section_fault(self, path: Key, reason: str) -> None:
        """Report valid values that do not fit together, unless one of them already has a fault."""
        key = format_key(path)
        if not any(fault.key.startswith(key + ".") for fault in self._faults):
            location = self._source.locate(path)
            problem = f"`{key}`: {reason.partition(' - at `')[0]}"
            self._faults.append(Fault(problem=problem, file=location.file, line=location.line, key=key))


def _build_key_fault(
    path: Key, value: Any, branch: SchemaTable, model: SettingsSchema, location: SourceLocation
) -> Fault:
    if isinstance(value, dict):
        return build_unknown_fault(
            "section", format_key(path), [child.key for child in branch.children.values()], location
        )
    here = build_unknown_fault("key", format_key(path), [child.key for child in branch.children.values()], location)
    return (
        here
        if here.nearest
        else build_unknown_fault("key", format_key(path), [field.key for field in model.fields()], location)
    )


def _merge(table: Table, overriding: Table) -> Table:
    merged = dict(table)
    for name, value in overriding.items():
        old = merged.get(name)
        merged[name] = _merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _select_section_keys(section: str, table: Table, sections: Sections) -> Table:
    """Return the part of ``table`` that belongs to the type of ``section``.

    The table of a network is shared by the type of all networks and the type of its own adapter.
    """
    below, each = _list_subsections(section, sections), named_type(sections[section])
    share = {key: value for key, value in table.items() if key not in below}
    for key in below & table.keys() if each else ():
        theirs = _list_fields(sections.get(f"{section}.{key}"))
        share[key] = {name: value for name, value in table[key].items() if name in _list_fields(each) - theirs}
    above = sections.get(section.rpartition(".")[0])
    not_ours = _list_fields(named_type(above)) - _list_fields(sections[section]) if above else set()
    return {key: value for key, value in share.items() if key not in not_ours}


def _list_fields(kind: Any) -> set[str]:
    return set(getattr(kind, "__struct_fields__", ()))


def _list_subsections(section: str, sections: Sections) -> set[str]:
    """Return the names of the sections within ``section``."""
    prefix = section + "."
    return {other.removeprefix(prefix).partition(".")[0] for other in sections if other.startswith(prefix)}

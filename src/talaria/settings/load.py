"""Read the settings of a profile: defaults, then its config.toml, then the environment, with every fault at once."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

import msgspec

from talaria.settings.errors import SettingsInvalid
from talaria.settings.faults import Fault, Place, missing_key, unknown, wrong_value
from talaria.settings.fields import NO_SECTIONS, Branch, Field, Model, Sections, named_type
from talaria.settings.keys import Key, dotted
from talaria.settings.model import Settings
from talaria.settings.overrides import Overrides, read_overrides
from talaria.settings.profiles import Profile
from talaria.settings.source import Source, read_source
from talaria.settings.words import value_in_words

Table = dict[str, Any]
S = TypeVar("S")


class Origin(msgspec.Struct, frozen=True):
    """Where a value comes from; without a place it is the default."""

    place: Place | None = None

    def __str__(self) -> str:
        return "default" if self.place is None else str(self.place)


class Loaded(msgspec.Struct, frozen=True):
    """What was read. With faults, ``settings`` holds what could be read, and defaults for the rest."""

    settings: Settings
    faults: tuple[Fault, ...]
    model: Model
    source: Source
    given: Table
    overrides: Overrides
    sections: Mapping[str, Any]

    def section(self, name: str, kind: type[S]) -> S:
        """The section called ``name``, which is of type ``kind``; its defaults if nothing was said."""
        found = self.sections.get(name)
        return kind() if found is None else cast("S", found)

    def values(self) -> Iterator[tuple[Field, Any]]:
        """Every key with its value, section by section."""
        for name, kind in self.model.sections.items():
            branch = Branch(tuple(name.split(".")), NO_SECTIONS, kind)
            yield from branch.values(self.sections.get(name) or kind())

    def origin(self, path: Key) -> Origin:
        """Where the value of a key comes from."""
        if path in self.overrides.variables:
            return Origin(self.overrides.place(path))
        at: Any = self.given
        for name in path:
            if not isinstance(at, dict) or name not in at:
                return Origin()
            at = at[name]
        return Origin(self.source.place(path))


def load(profile: Profile, environment: Mapping[str, str], sections: Sections = NO_SECTIONS) -> Loaded:
    """Read what there is, and collect what is wrong with it.

    ``sections`` are the tables that other parts of the program own; every key of theirs has a default.
    """
    return interpret(read_source(profile.config_file), environment, sections)


def load_settings(profile: Profile, environment: Mapping[str, str], sections: Sections = NO_SECTIONS) -> Settings:
    """The settings of a profile, or `SettingsInvalid` with everything that is wrong with them."""
    loaded = load(profile, environment, sections)
    if loaded.faults:
        raise SettingsInvalid(loaded.faults)
    return loaded.settings


def interpret(source: Source, environment: Mapping[str, str], sections: Sections = NO_SECTIONS) -> Loaded:
    """Make settings of a configuration text and the overrides of an environment."""
    return _Reading(source, environment, Model(sections)).finish()


class _Reading:
    def __init__(self, source: Source, environment: Mapping[str, str], model: Model) -> None:
        self._source = source
        self._model = model
        self._faults = [source.fault] if source.fault else []
        self._seen: set[Key] = set()
        self._overrides = read_overrides(environment, model, source.table)
        self._faults += self._overrides.faults

    def finish(self) -> Loaded:
        given = self._checked(self._source.table, self._model.root, self._source.place)
        merged = _merged(given, self._checked(self._overrides.table, self._model.root, self._overrides.place))
        self._find_missing(merged, self._model.root)
        built = {name: value for name in self._model.sections if (value := self._build(name, merged)) is not None}
        core = {name: built[name] for name in Settings.__struct_fields__ if name in built}
        return Loaded(
            settings=Settings(**core),
            faults=tuple(self._faults),
            model=self._model,
            source=self._source,
            given=given,
            overrides=self._overrides,
            sections=built,
        )

    def _checked(self, table: Table, branch: Branch, place: Callable[[Key], Place]) -> Table:
        """The part of ``table`` that is right; the rest becomes faults."""
        right: Table = {}
        for name, value in table.items():
            path, known = (*branch.path, name), branch.child(name)
            if known is None:
                self._faults.append(_unknown(path, value, branch, self._model, place(path)))
            elif isinstance(known, Branch):
                if isinstance(value, dict):
                    right[name] = self._checked(value, known, place)
                else:
                    self._faults.append(wrong_value(known.key, "a table", value_in_words(value), place(path)))
            else:
                self._seen.add(path)
                if known.accepts(value):
                    right[name] = value
                else:
                    self._faults.append(wrong_value(known.key, known.expected, known.found(value), place(path)))
        return right

    def _find_missing(self, table: Table, branch: Branch) -> None:
        for name, value in table.items():
            child = branch.child(name)
            if isinstance(child, Branch):
                self._find_missing(value, child)
        for child in branch.own.values():
            if isinstance(child, Field) and child.required and child.path not in self._seen:
                self._faults.append(missing_key(child.key, child.expected, self._source.place(branch.path)))

    def _build(self, name: str, given: Table) -> Any:
        """The section called ``name``; None if nothing is said about it, or nothing that makes sense."""
        path = tuple(name.split("."))
        table = given
        for part in path:
            table = table.get(part, {})
        if not table:
            return None
        try:
            return msgspec.convert(_share(name, table, self._model.sections), self._model.sections[name])
        except msgspec.ValidationError as error:
            self._blame_section(path, str(error))
            return None

    def _blame_section(self, path: Key, reason: str) -> None:
        """Say that values which are right one by one do not fit together, unless one of them is at fault already."""
        key = dotted(path)
        if not any(fault.key.startswith(key + ".") for fault in self._faults):
            place = self._source.place(path)
            problem = f"`{key}`: {reason.partition(' - at `')[0]}"
            self._faults.append(Fault(problem=problem, file=place.file, line=place.line, key=key))


def _unknown(path: Key, value: Any, branch: Branch, model: Model, place: Place) -> Fault:
    if isinstance(value, dict):
        return unknown("section", dotted(path), [child.key for child in branch.children.values()], place)
    here = unknown("key", dotted(path), [child.key for child in branch.children.values()], place)
    return here if here.nearest else unknown("key", dotted(path), [field.key for field in model.fields()], place)


def _merged(table: Table, over: Table) -> Table:
    merged = dict(table)
    for name, value in over.items():
        old = merged.get(name)
        merged[name] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _share(section: str, table: Table, sections: Sections) -> Table:
    """The part of ``table`` that is of the type of ``section``.

    The table of one network is shared: by the type of all networks, and by that of its own part of the program.
    """
    below, each = _below(section, sections), named_type(sections[section])
    share = {key: value for key, value in table.items() if key not in below}
    for key in below & table.keys() if each else ():
        theirs = _keys(sections.get(f"{section}.{key}"))
        share[key] = {name: value for name, value in table[key].items() if name in _keys(each) - theirs}
    above = sections.get(section.rpartition(".")[0])
    not_ours = _keys(named_type(above)) - _keys(sections[section]) if above else set()
    return {key: value for key, value in share.items() if key not in not_ours}


def _keys(kind: Any) -> set[str]:
    return set(getattr(kind, "__struct_fields__", ()))


def _below(section: str, sections: Sections) -> set[str]:
    """The names of the sections that stand in ``section``."""
    prefix = section + "."
    return {other.removeprefix(prefix).partition(".")[0] for other in sections if other.startswith(prefix)}

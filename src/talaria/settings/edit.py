"""Change single keys of a config.toml so that everything else in it, comments included, stays as it was."""

import tomllib
from collections.abc import MutableMapping
from copy import deepcopy
from typing import Any

import tomlkit
from msgspec import Struct
from tomlkit.exceptions import TOMLKitError

from talaria.core.errors import NotFound, Refused
from talaria.settings.errors import SettingsInvalid
from talaria.settings.faults import unknown, wrong_value
from talaria.settings.fields import NO_SECTIONS, Field, Model, Sections
from talaria.settings.files import only_writer, write_file
from talaria.settings.keys import Key, dotted, split_key
from talaria.settings.load import interpret
from talaria.settings.profiles import Profile
from talaria.settings.source import Source, read_source
from talaria.settings.text import value_from_text

Table = MutableMapping[str, Any]


class Edit(Struct, frozen=True):
    """What was changed. Without a field, a key was removed that is not a known one."""

    key: str
    field: Field | None
    shown: str = ""

    @property
    def live(self) -> bool:
        """Whether a running process takes the change over at once."""
        return self.field is not None and self.field.live


def set_value(profile: Profile, key: str, text: str, sections: Sections = NO_SECTIONS) -> Edit:
    """Give a key the value that ``text`` means, or raise without having written anything."""
    field = _known_field(key, Model(sections))
    value = value_from_text(text, field.annotation)
    if not field.accepts(value):
        raise SettingsInvalid([wrong_value(field.key, field.expected, field.found(value))])
    with only_writer(profile.folder):
        source = _sound(profile)
        document = tomlkit.parse(source.text)
        _put(document, field.path, value)
        wanted = deepcopy(source.table)
        _put(wanted, field.path, value)
        _write(source, document, wanted, sections)
    return Edit(field.key, field, field.shown(value))


def unset_value(profile: Profile, key: str, sections: Sections = NO_SECTIONS) -> Edit:
    """Remove a key from the file, so that its default counts again; an unknown key can be removed too."""
    path = split_key(key)
    with only_writer(profile.folder):
        source = _sound(profile)
        wanted = deepcopy(source.table)
        if not _remove(wanted, path):
            known = Model(sections).find(path)
            fault = unknown("key", key, [field.key for field in Model(sections).fields()])
            raise NotFound(f"`{key}` is not set in {source.path}." if known else fault.problem)
        document = tomlkit.parse(source.text)
        _remove(document, path)
        _write(source, document, wanted, sections)
    known = Model(sections).find(path)
    return Edit(dotted(path), known if isinstance(known, Field) else None)


def _known_field(key: str, model: Model) -> Field:
    known = model.find(split_key(key))
    if isinstance(known, Field):
        return known
    fault = unknown("key", key, [field.key for field in model.fields()])
    raise NotFound(f"`{key}` is a table; name a key in it." if known else fault.problem)


def _sound(profile: Profile) -> Source:
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
            raise Refused(f"`{name}` is not a table in config.toml; repair it with `talaria config edit`.")
    table[path[-1]] = value


def _remove(table: Table, path: Key) -> bool:
    for name in path[:-1]:
        below = table.get(name)
        if not isinstance(below, MutableMapping):
            return False
        table = below
    return table.pop(path[-1], None) is not None if path else False


def _write(source: Source, document: tomlkit.TOMLDocument, wanted: Table, sections: Sections) -> None:
    try:
        text = tomlkit.dumps(document)
        matches = tomllib.loads(text) == wanted
    except (TOMLKitError, tomllib.TOMLDecodeError):
        matches = False
    if not matches:
        raise Refused(f"{source.path} is written in a way that cannot be changed safely; use `talaria config edit`.")
    before = {fault.problem for fault in interpret(source, {}, sections).faults}
    after = interpret(Source(source.path, text), {}, sections).faults
    new = [fault for fault in after if fault.problem not in before]
    if new:
        raise SettingsInvalid(new)
    write_file(source.path, text)

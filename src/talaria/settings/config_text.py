"""The text of a config.toml for an editor: secrets are masked in it, and put back when it is saved."""

from collections.abc import Iterator, Mapping
from difflib import unified_diff
from typing import Any

import tomlkit
from msgspec import Struct
from tomlkit.exceptions import TOMLKitError

from talaria.settings.atomic_files import lock_folder, write_file
from talaria.settings.config_file import ConfigFile, read_source
from talaria.settings.edit import check_version, file_version
from talaria.settings.errors import Fault, SettingsInvalid
from talaria.settings.load import interpret
from talaria.settings.profiles import Profile
from talaria.settings.schema import NO_SECTIONS, Key, Sections, format_key

_MASK = "****"


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
    return ConfigText(_mask_text(source, sections), file_version(source.text), source.fault)


def check_text(profile: Profile, text: str, sections: Sections = NO_SECTIONS) -> CheckedText:
    """Return what saving this text would do; the lines of the comparison have masked secrets."""
    source = read_source(profile.config_file)
    faults = interpret(_restore(source, text, sections), {}, sections).faults
    return CheckedText((*_find_masked(source, text, sections), *faults), _compare(source, text, sections))


def save_text(profile: Profile, text: str, version: str, sections: Sections = NO_SECTIONS) -> None:
    """Replace the profile's file.

    Raises `FileChanged` if it no longer has ``version``, and `SettingsInvalid` with the faults of the text.
    """
    with lock_folder(profile.folder):
        source = read_source(profile.config_file)
        check_version(source, version)
        restored = _restore(source, text, sections)
        faults = (*_find_masked(source, text, sections), *interpret(restored, {}, sections).faults)
        if faults:
            raise SettingsInvalid(faults)
        write_file(source.path, restored.text)


def _compare(source: ConfigFile, text: str, sections: Sections) -> tuple[str, ...]:
    before, after = _mask_text(source, sections).splitlines(), text.splitlines()
    return tuple(unified_diff(before, after, lineterm="", n=2))[2:]


def _mask_text(source: ConfigFile, sections: Sections) -> str:
    values = {path: masked for path, value, masked in _list_secrets(source, sections) if masked != value}
    return _replace(source.text, values) if values else source.text


def _restore(source: ConfigFile, text: str, sections: Sections) -> ConfigFile:
    """Return the edited text with the secrets of the file where it still has their masks."""
    changed = ConfigFile(source.path, text)
    values = {
        path: value
        for path, value, masked in _list_secrets(source, sections)
        if masked != value and _get(changed.table, path) == masked
    }
    return ConfigFile(source.path, _replace(text, values)) if values else changed


def _find_masked(source: ConfigFile, text: str, sections: Sections) -> Iterator[Fault]:
    """Yield a fault for each mask that stands for no secret of the file."""
    restored = _restore(source, text, sections)
    for path, value, _ in _list_secrets(restored, sections):
        if _MASK in value:
            place = restored.place(path)
            problem = f"`{format_key(path)}` has a masked value. Type the whole value."
            yield Fault(problem=problem, file=place.file, line=place.line, key=format_key(path))


def _list_secrets(source: ConfigFile, sections: Sections) -> Iterator[tuple[Key, str, str]]:
    """Yield each text in the file that may hold a secret, with its path and how it is shown."""
    for field, _ in interpret(source, {}, sections).values():
        value = _get(source.table, field.path) if field.secret else None
        if isinstance(value, str):
            yield field.path, value, field.shown(value)
        elif isinstance(value, Mapping):
            texts = {name: one for name, one in value.items() if isinstance(one, str) and one}
            yield from (((*field.path, name), one, _MASK) for name, one in texts.items())


def _get(table: Mapping[str, Any], path: Key) -> Any:
    at: Any = table
    for name in path:
        at = at.get(name) if isinstance(at, Mapping) else None
    return at


def _replace(text: str, values: Mapping[Key, str]) -> str:
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

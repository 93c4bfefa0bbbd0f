"""Schema of all settings: types, defaults, limits and descriptions, resolved table by table."""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Annotated, Any, cast, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, Struct, inspect

from talaria.settings.errors import find_nearest
from talaria.settings.model import Settings
from talaria.settings.value_text import describe_type, describe_value, format_value


class Setting(Struct, frozen=True):
    """Setting with its value; secrets in the value are masked."""

    key: str
    value: str
    about: str
    is_default: bool


Key = tuple[str, ...]
ANY_NAME = "<name>"
VARIABLE_PREFIX = "TALARIA__"
_BARE = r"[A-Za-z0-9_-]+"
_PART = r"\"[^\"]*\"|'[^']*'|[^.]+"
_NOT_IN_VARIABLES = r"[^A-Z0-9_]"


def format_key(key: Iterable[str | int]) -> str:
    """Return a dotted key as written: ``store.url``, ``providers."gpt.4".url``."""
    return ".".join(_quote_part(str(part)) for part in key)


def split_key(text: str) -> Key:
    """Return the parts of a dotted key; a quoted part may contain dots."""
    return tuple(part[1:-1] if part[0] in "\"'" else part.strip() for part in re.findall(_PART, text))


def variable(key: Key) -> str:
    """Return the environment variable that overrides ``key``."""
    return VARIABLE_PREFIX + "__".join(variable_part(part) for part in key)


def variable_part(name: str) -> str:
    """Return a part of a key as spelled in an environment variable."""
    return name if name == ANY_NAME else re.sub(_NOT_IN_VARIABLES, "_", name.upper())


def _quote_part(part: str) -> str:
    if part == ANY_NAME or re.fullmatch(_BARE, part):
        return part
    return f"'{part}'" if '"' in part else f'"{part}"'


Sections = Mapping[str, Any]


"""Dotted name of a table to its type: a Struct, or ``dict[str, SomeStruct]`` for a table of named tables."""


NO_SECTIONS: Sections = MappingProxyType({})


class SchemaField(msgspec.Struct, frozen=True):
    """Schema of one key; in named tables the name is ``<name>`` unless a real one was requested."""

    path: Key
    annotation: Any
    kind: str
    constraint: str
    expected: str
    default: Any
    doc: str
    live: bool
    check: Callable[[Any], bool] | None
    mask: Callable[[str], str] | None

    @property
    def key(self) -> str:
        """Dotted key, as in config.toml."""
        return format_key(self.path)

    @property
    def variable(self) -> str:
        """Environment variable that overrides the key."""
        return variable(self.path)

    @property
    def required(self) -> bool:
        """Return whether the key must be given if its table exists."""
        return self.default is NODEFAULT

    @property
    def secret(self) -> bool:
        """Return whether the value may contain a secret."""
        return self.mask is not None

    def format_value(self, value: Any) -> str:
        """Return the value as text, with secrets masked."""
        return self._apply_mask(format_value(value))

    def describe_value(self, value: Any) -> str:
        """Return a description of the value for a fault, with secrets masked."""
        return self._apply_mask(describe_value(value))

    def accepts(self, value: Any) -> bool:
        """Return whether ``value`` has the right type and passes its limits and check."""
        try:
            converted = msgspec.convert(value, self.annotation)
        except msgspec.ValidationError:
            return False
        return self.check is None or self.check(converted)

    def entry(self, name: str) -> SchemaField | None:
        """Return the schema of one entry, if the key holds a table; masked and live like the table."""
        annotation = get_args(self.annotation)[0] if get_origin(self.annotation) is Annotated else self.annotation
        if get_origin(annotation) is not dict:
            return None
        kind = get_args(annotation)[1]
        label, constraint = describe_type(inspect.type_info(kind))
        return msgspec.structs.replace(
            self,
            path=(*self.path, name),
            annotation=kind,
            kind=label,
            constraint=constraint,
            expected=f"{label} {constraint}".strip(),
            check=None,
        )

    def _apply_mask(self, text: str) -> str:
        return self.mask(text) if self.mask else text


class SchemaTable:
    """Schema of a table; its content is resolved on first use.

    ``shared`` is the type of all named tables here, if one of them also has its own type.
    """

    def __init__(self, path: Key, sections: Sections, model: Any = None, shared: Any = None) -> None:
        self.path = path
        self._sections = sections
        self._model = model
        self._shared = shared

    @property
    def key(self) -> str:
        """Dotted name of the table."""
        return format_key(self.path)

    @cached_property
    def model(self) -> Any:
        """Type of the table; ``None`` if it only holds other tables."""
        return self._model or self._sections.get(".".join(self.path))

    @cached_property
    def own(self) -> dict[str, SchemaField | SchemaTable]:
        """Return the content defined by the table's type, without added sections."""
        types = [one for one in (self._shared, self.model) if one]
        return {name: child for one in types for name, child in _build_children(self.path, one).items()}

    @cached_property
    def children(self) -> dict[str, SchemaField | SchemaTable]:
        """Return the content of the table by name; ``<name>`` stands for any name."""
        depth = len(self.path)
        below = [name for name in map(_split_section, self._sections) if name[:depth] == self.path and name[depth:]]
        return self.own | {name[depth]: SchemaTable(name[: depth + 1], self._sections) for name in below}

    def child(self, name: str) -> SchemaField | SchemaTable | None:
        """Return the schema of ``name`` in this table, or ``None``."""
        found = self.children.get(name)
        named = self.children.get(ANY_NAME)
        if not isinstance(named, SchemaTable) or isinstance(found, SchemaField):
            return found
        path = (*self.path, name)
        return (
            SchemaTable(path, self._sections, shared=named.model)
            if found
            else SchemaTable(path, NO_SECTIONS, named.model)
        )

    def fields(self) -> Iterator[SchemaField]:
        """Yield all keys in this table and below."""
        for child in self.children.values():
            if isinstance(child, SchemaField):
                yield child
            else:
                yield from child.fields()

    def values(self, table: Any) -> Iterator[tuple[SchemaField, Any]]:
        """Yield all keys of ``table``, a value of this type, with their values."""
        names = table if ANY_NAME in self.own else self.own
        for name in names:
            child = self.child(name)
            value = table[name] if names is table else getattr(table, name)
            if isinstance(child, SchemaField):
                yield child, value
            elif child is not None:
                yield from child.values(value)


class SettingsSchema:
    """Schema of Talaria's settings and the ``sections`` added by its parts.

    A section's type is resolved only with its table; the mapping may import it then.
    """

    def __init__(self, sections: Sections = NO_SECTIONS) -> None:
        core = {field.name: field.type for field in msgspec.structs.fields(Settings)}
        self.sections: Sections = ChainMap(cast("MutableMapping[str, Any]", sections), core)
        self.root = SchemaTable((), self.sections)

    def fields(self) -> tuple[SchemaField, ...]:
        """Return all keys, by section."""
        return tuple(self.root.fields())

    def find(self, path: Key) -> SchemaField | SchemaTable | None:
        """Return the key, table or table entry at ``path``, or ``None``."""
        at: SchemaField | SchemaTable | None = self.root if path else None
        for name in path:
            if at is not None:
                at = at.child(name) if isinstance(at, SchemaTable) else at.entry(name)
        return at

    def find_nearest_key(self, key: str) -> str:
        """Return the most similar known key; empty if none is close."""
        return find_nearest(key, [field.key for field in self.fields()])


def named_type(kind: Any) -> Any:
    """Return the type of the tables in a table of named tables; ``None`` for other types."""
    return _find_named_type(inspect.type_info(kind))


@lru_cache(maxsize=512)  # settings are read again whenever a file changes; their types never do
def _build_children(path: Key, model: Any) -> Mapping[str, SchemaField | SchemaTable]:
    named = _find_named_type(inspect.type_info(model))
    if named is not None:
        return {ANY_NAME: SchemaTable((*path, ANY_NAME), NO_SECTIONS, named)}
    return {info.name: _build_child((*path, info.name), info) for info in msgspec.structs.fields(model)}


def _build_child(path: Key, info: msgspec.structs.FieldInfo) -> SchemaField | SchemaTable:
    kind = inspect.type_info(info.type)
    inner_type = kind.type if isinstance(kind, inspect.Metadata) else kind
    if isinstance(inner_type, inspect.StructType):
        return SchemaTable(path, NO_SECTIONS, inner_type.cls)
    if _find_named_type(kind) is not None:
        return SchemaTable(path, NO_SECTIONS, info.type)
    return _build_field(path, info, kind)


def _build_field(path: Key, info: msgspec.structs.FieldInfo, kind: inspect.Type) -> SchemaField:
    metadata = kind if isinstance(kind, inspect.Metadata) else inspect.Metadata(kind)
    extra = metadata.extra or {}
    label, constraint = describe_type(metadata.type)
    return SchemaField(
        path=path,
        annotation=info.type,
        kind=label,
        constraint=extra.get("expected", constraint),
        expected=extra.get("expected") or f"{label} {constraint}".strip(),
        default=info.default if info.default_factory is NODEFAULT else info.default_factory(),
        doc=(metadata.extra_json_schema or {}).get("description", ""),
        live=extra.get("live", False),
        check=extra.get("check"),
        mask=extra.get("mask"),
    )


def _find_named_type(kind: inspect.Type) -> Any:
    inner_type = kind.type if isinstance(kind, inspect.Metadata) else kind
    inner = inner_type.value_type if isinstance(inner_type, inspect.DictType) else None
    return inner.cls if isinstance(inner, inspect.StructType) else None


def _split_section(section: str) -> Key:
    return tuple(section.split("."))

"""The keys that exist: each with its type, default, limits and meaning, found table by table."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, cast, get_args, get_origin

import msgspec
from msgspec import NODEFAULT, inspect

from talaria.settings.faults import nearest
from talaria.settings.keys import ANY_NAME, Key, dotted, variable
from talaria.settings.model import Settings
from talaria.settings.words import type_in_words, value_as_text, value_in_words

Sections = Mapping[str, Any]
"""Dotted name of a table to its type: a Struct, or ``dict[str, SomeStruct]`` for a table of named tables."""

NO_SECTIONS: Sections = MappingProxyType({})


class Field(msgspec.Struct, frozen=True):
    """One key. In a table of named tables the name reads ``<name>`` unless a real one was asked for."""

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
        """The dotted key, as in config.toml."""
        return dotted(self.path)

    @property
    def variable(self) -> str:
        """The environment variable that overrides the key."""
        return variable(self.path)

    @property
    def required(self) -> bool:
        """Whether the key must be given wherever its table stands."""
        return self.default is NODEFAULT

    @property
    def secret(self) -> bool:
        """Whether the value may hold something that is not to be shown."""
        return self.mask is not None

    def shown(self, value: Any) -> str:
        """The value as text, without what is secret in it."""
        return self._masked(value_as_text(value))

    def found(self, value: Any) -> str:
        """The value in words for a fault, without what is secret in it."""
        return self._masked(value_in_words(value))

    def accepts(self, value: Any) -> bool:
        """Whether ``value`` has the type of the key and passes its limits and its check."""
        try:
            converted = msgspec.convert(value, self.annotation)
        except msgspec.ValidationError:
            return False
        return self.check is None or self.check(converted)

    def entry(self, name: str) -> Field | None:
        """The entry of this name, where the key holds a table of values; it is masked and live like the table."""
        annotation = get_args(self.annotation)[0] if get_origin(self.annotation) is Annotated else self.annotation
        if get_origin(annotation) is not dict:
            return None
        kind = get_args(annotation)[1]
        words, constraint = type_in_words(inspect.type_info(kind))
        return msgspec.structs.replace(
            self,
            path=(*self.path, name),
            annotation=kind,
            kind=words,
            constraint=constraint,
            expected=f"{words} {constraint}".strip(),
            check=None,
        )

    def _masked(self, text: str) -> str:
        return self.mask(text) if self.mask else text


class Branch:
    """A table: what may stand in it is looked up when it is first asked for.

    ``shared`` is the type of all named tables here, where one of them has a type of its own as well.
    """

    def __init__(self, path: Key, sections: Sections, model: Any = None, shared: Any = None) -> None:
        self.path = path
        self._sections = sections
        self._model = model
        self._shared = shared

    @property
    def key(self) -> str:
        """The dotted name of the table."""
        return dotted(self.path)

    @cached_property
    def model(self) -> Any:
        """The type of the table; None if it only holds other tables."""
        return self._model or self._sections.get(".".join(self.path))

    @cached_property
    def own(self) -> dict[str, Field | Branch]:
        """What the type of the table names, without sections that others put into it."""
        types = [one for one in (self._shared, self.model) if one]
        return {name: child for one in types for name, child in _children(self.path, one)}

    @cached_property
    def children(self) -> dict[str, Field | Branch]:
        """What may stand in the table, by name; ``<name>`` stands for any name."""
        depth = len(self.path)
        below = [name for name in map(_parts, self._sections) if name[:depth] == self.path and name[depth:]]
        return self.own | {name[depth]: Branch(name[: depth + 1], self._sections) for name in below}

    def child(self, name: str) -> Field | Branch | None:
        """What ``name`` stands for in this table, if anything."""
        found = self.children.get(name)
        named = self.children.get(ANY_NAME)
        if not isinstance(named, Branch) or isinstance(found, Field):
            return found
        path = (*self.path, name)
        return Branch(path, self._sections, shared=named.model) if found else Branch(path, NO_SECTIONS, named.model)

    def fields(self) -> Iterator[Field]:
        """Every key in this table and in those below it."""
        for child in self.children.values():
            if isinstance(child, Field):
                yield child
            else:
                yield from child.fields()

    def values(self, table: Any) -> Iterator[tuple[Field, Any]]:
        """Every key of ``table``, a value of this branch's type, with what it is set to."""
        names = table if ANY_NAME in self.own else self.own
        for name in names:
            child = self.child(name)
            value = table[name] if names is table else getattr(table, name)
            if isinstance(child, Field):
                yield child, value
            elif child is not None:
                yield from child.values(value)


class Model:
    """Every key of Talaria and of the ``sections`` its parts have added.

    A section's type is looked up only when its table is; the mapping may import it at that moment.
    """

    def __init__(self, sections: Sections = NO_SECTIONS) -> None:
        core = {field.name: field.type for field in msgspec.structs.fields(Settings)}
        self.sections: Sections = ChainMap(cast("MutableMapping[str, Any]", sections), core)
        self.root = Branch((), self.sections)

    def fields(self) -> tuple[Field, ...]:
        """Every key, section by section."""
        return tuple(self.root.fields())

    def find(self, path: Key) -> Field | Branch | None:
        """The key or table at ``path``, or the entry of a key that holds a table; None if there is none."""
        at: Field | Branch | None = self.root if path else None
        for name in path:
            if at is not None:
                at = at.child(name) if isinstance(at, Branch) else at.entry(name)
        return at

    def nearest(self, key: str) -> str:
        """The known key most like ``key``; empty if none is close."""
        return nearest(key, [field.key for field in self.fields()])


def named_type(kind: Any) -> Any:
    """The type of each table in a table of named tables; None if ``kind`` is no such."""
    return _named_tables(inspect.type_info(kind))


def _children(path: Key, model: Any) -> Iterator[tuple[str, Field | Branch]]:
    named = _named_tables(inspect.type_info(model))
    if named is not None:
        yield ANY_NAME, Branch((*path, ANY_NAME), NO_SECTIONS, named)
        return
    for info in msgspec.structs.fields(model):
        yield info.name, _child((*path, info.name), info)


def _child(path: Key, info: msgspec.structs.FieldInfo) -> Field | Branch:
    kind = inspect.type_info(info.type)
    bare = kind.type if isinstance(kind, inspect.Metadata) else kind
    if isinstance(bare, inspect.StructType):
        return Branch(path, NO_SECTIONS, bare.cls)
    if _named_tables(kind) is not None:
        return Branch(path, NO_SECTIONS, info.type)
    return _field(path, info, kind)


def _field(path: Key, info: msgspec.structs.FieldInfo, kind: inspect.Type) -> Field:
    described = kind if isinstance(kind, inspect.Metadata) else inspect.Metadata(kind)
    extra = described.extra or {}
    words, constraint = type_in_words(described.type)
    return Field(
        path=path,
        annotation=info.type,
        kind=words,
        constraint=extra.get("expected", constraint),
        expected=extra.get("expected") or f"{words} {constraint}".strip(),
        default=info.default if info.default_factory is NODEFAULT else info.default_factory(),
        doc=(described.extra_json_schema or {}).get("description", ""),
        live=extra.get("live", False),
        check=extra.get("check"),
        mask=extra.get("mask"),
    )


def _named_tables(kind: inspect.Type) -> Any:
    bare = kind.type if isinstance(kind, inspect.Metadata) else kind
    inner = bare.value_type if isinstance(bare, inspect.DictType) else None
    return inner.cls if isinstance(inner, inspect.StructType) else None


def _parts(section: str) -> Key:
    return tuple(section.split("."))

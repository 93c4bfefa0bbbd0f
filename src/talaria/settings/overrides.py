"""Environment variables that override settings: ``TALARIA__STORE__READERS`` for ``store.readers``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from talaria.settings.faults import Fault, Place
from talaria.settings.fields import Branch, Field, Model
from talaria.settings.keys import ANY_NAME, VARIABLE_PREFIX, Key, split_key, variable, variable_part
from talaria.settings.text import value_from_text


class Overrides(Struct, frozen=True):
    """What an environment overrides, as a table like that of a file, with the variable behind each key."""

    table: dict[str, Any] = {}
    variables: dict[Key, str] = {}
    faults: list[Fault] = []

    def place(self, path: Key) -> Place:
        """The variable that sets a key."""
        return _place(self.variables.get(path, variable(path)))


def read_overrides(environment: Mapping[str, str], model: Model, table: Mapping[str, Any]) -> Overrides:
    """Find every override; ``table`` tells how named tables are spelt that have a counterpart in the file."""
    overrides = Overrides()
    for name in sorted(name for name in environment if name.startswith(VARIABLE_PREFIX)):
        known = _find(name.removeprefix(VARIABLE_PREFIX).split("__"), model.root, table)
        if known is None:
            overrides.faults.append(_unknown(name, model))
        else:
            overrides.variables[known.path] = name
            _put(overrides.table, known.path, value_from_text(environment[name], known.annotation))
    return overrides


def _find(parts: list[str], branch: Branch, table: Any) -> Field | None:
    below = table if isinstance(table, Mapping) else {}
    names = [*branch.children, *below]
    name = next((name for name in names if variable_part(name) == parts[0]), parts[0].lower())
    child = branch.child(name) if name not in {"", ANY_NAME} else None
    if isinstance(child, Branch):
        return _find(parts[1:], child, below.get(name)) if parts[1:] else None
    return None if parts[1:] else child


def _put(table: dict[str, Any], path: Key, value: Any) -> None:
    for name in path[:-1]:
        table = table.setdefault(name, {})
    table[path[-1]] = value


def _unknown(name: str, model: Model) -> Fault:
    guess = name.removeprefix(VARIABLE_PREFIX).replace("__", ".").lower()
    close = model.nearest(guess)
    nearest = variable(split_key(close)) if close else ""
    help_ = f"the nearest is `{nearest}`" if close else "`talaria config show` lists all keys"
    place = _place(name)
    return Fault(problem=f"`{name}` overrides no known key; {help_}.", file=place.file, key=guess, nearest=nearest)


def _place(name: str) -> Place:
    return Place(f"environment variable {name}")

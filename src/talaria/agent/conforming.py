"""Whether an answer is JSON that fits a schema: the part of JSON Schema that says what an answer has to look like."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

Schema = Mapping[str, Any] | bool
_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_REMARKS = {
    "$comment", "$id", "$schema", "default", "deprecated", "description", "examples", "format", "readOnly", "title",
    "writeOnly",
}  # fmt: skip
_SCHEMAS = ("additionalProperties", "items", "not")
_LISTS = ("allOf", "anyOf", "oneOf")
_NAMED = ("$defs", "definitions", "properties")
_MOST_DEPTH = 40
_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: _is_number(value) and value == int(value),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}
_BOUNDS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (lambda value, bound: not _is_number(value) or value >= bound, "is less than {}"),
    "maximum": (lambda value, bound: not _is_number(value) or value <= bound, "is more than {}"),
    "exclusiveMinimum": (lambda value, bound: not _is_number(value) or value > bound, "is not more than {}"),
    "exclusiveMaximum": (lambda value, bound: not _is_number(value) or value < bound, "is not less than {}"),
    "minLength": (lambda value, bound: not isinstance(value, str) or len(value) >= bound, "is shorter than {}"),
    "maxLength": (lambda value, bound: not isinstance(value, str) or len(value) <= bound, "is longer than {}"),
    "minItems": (lambda value, bound: not isinstance(value, list) or len(value) >= bound, "has fewer than {} items"),
    "maxItems": (lambda value, bound: not isinstance(value, list) or len(value) <= bound, "has more than {} items"),
    "minProperties": (lambda value, bound: not isinstance(value, dict) or len(value) >= bound, "has fewer than {}"),
    "maxProperties": (lambda value, bound: not isinstance(value, dict) or len(value) <= bound, "has more than {}"),
}
_KNOWN = {*_REMARKS, *_SCHEMAS, *_LISTS, *_NAMED, *_BOUNDS, "$ref", "const", "enum", "required", "type", "uniqueItems"}


def trouble_with(schema: Any) -> str:
    """Return what in a schema cannot be checked, as the end of a sentence; empty for one that can be used."""
    try:
        _check_schema(schema, schema, 0)
    except _Unfit as error:
        return str(error)
    return ""


def read_answer(text: str) -> Any:
    """Return the JSON that an answer is, in a fence or between words too; raises `ValueError` where there is none."""
    for candidate in _candidates(text):
        try:
            return msgspec.json.decode(candidate)
        except (msgspec.DecodeError, RecursionError):
            continue
    raise ValueError("the answer is not JSON")


def misfit(value: Any, schema: Any) -> str:
    """Return the first thing in which a value does not fit a schema, with its place; empty for one that fits."""
    return next(_misfits(value, schema, schema, "answer"), "")


class _Unfit(ValueError):
    """A schema that cannot be used."""


def _candidates(text: str) -> Iterator[str]:
    yield text
    yield from _FENCED.findall(text)
    for opening, closing in ("{}", "[]"):
        first, last = text.find(opening), text.rfind(closing)
        if 0 <= first < last:
            yield text[first : last + 1]


def _check_schema(schema: Any, root: Any, depth: int) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise _Unfit("a schema has to be an object")
    if depth > _MOST_DEPTH:
        raise _Unfit("it is nested too deeply")
    if unknown := sorted(schema.keys() - _KNOWN):
        raise _Unfit(f"`{unknown[0]}` is not checked here, leave it out")
    if "$ref" in schema:
        _resolved(schema["$ref"], root)
    _check_words(schema)
    for inner in _inner(schema):
        _check_schema(inner, root, depth + 1)


def _check_words(schema: Mapping[str, Any]) -> None:
    types = schema.get("type", [])
    for name in [types] if isinstance(types, str) else types:
        if name not in _TYPES:
            raise _Unfit(f"there is no type `{name}`")
    if not all(_is_number(schema[name]) for name in _BOUNDS if name in schema):
        raise _Unfit("a bound has to be a number")
    if not isinstance(schema.get("enum", []), list) or not isinstance(schema.get("required", []), list):
        raise _Unfit("`enum` and `required` have to be lists")


def _inner(schema: Mapping[str, Any]) -> Iterator[Any]:
    yield from (schema[name] for name in _SCHEMAS if name in schema)
    for name in _LISTS:
        if not isinstance(schema.get(name, []), list):
            raise _Unfit(f"`{name}` has to be a list")
        yield from schema.get(name, [])
    for name in _NAMED:
        if not isinstance(schema.get(name, {}), dict):
            raise _Unfit(f"`{name}` has to be an object")
        yield from schema.get(name, {}).values()


def _resolved(reference: Any, root: Any) -> Any:
    found = root
    for step in str(reference).removeprefix("#").strip("/").split("/"):
        if step and (not isinstance(found, dict) or step not in found):
            raise _Unfit(f"`{reference}` refers to nothing")
        found = found[step] if step else found
    return found


def _misfits(value: Any, schema: Any, root: Any, place: str, depth: int = 0) -> Iterator[str]:
    if schema is True:
        return
    if schema is False:
        yield f"{place} is not allowed"
        return
    if depth > _MOST_DEPTH:
        yield f"{place} is nested too deeply"
        return
    if "$ref" in schema:
        yield from _misfits(value, _resolved(schema["$ref"], root), root, place, depth + 1)
    yield from _own_misfits(value, schema, place)
    yield from _composed_misfits(value, schema, root, place, depth + 1)
    if isinstance(value, dict):
        yield from _object_misfits(value, schema, root, place, depth + 1)
    if isinstance(value, list) and "items" in schema:
        for number, entry in enumerate(value):
            yield from _misfits(entry, schema["items"], root, f"{place}[{number}]", depth + 1)


def _own_misfits(value: Any, schema: Mapping[str, Any], place: str) -> Iterator[str]:
    types = schema.get("type", [])
    names = [types] if isinstance(types, str) else types
    if names and not any(_TYPES[name](value) for name in names):
        yield f"{place} is not of type {' or '.join(names)}"
    if "enum" in schema and not any(_same(value, choice) for choice in schema["enum"]):
        yield f"{place} is none of {msgspec.json.encode(schema['enum']).decode()}"
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{place} is not {msgspec.json.encode(schema['const']).decode()}"
    for name, (fits, words) in _BOUNDS.items():
        if name in schema and not fits(value, schema[name]):
            yield f"{place} {words.format(schema[name])}"
    if schema.get("uniqueItems") is True and isinstance(value, list) and _repeats(value):
        yield f"{place} has the same item twice"


def _composed_misfits(value: Any, schema: Mapping[str, Any], root: Any, place: str, depth: int) -> Iterator[str]:
    def fits(part: Any) -> bool:
        return next(_misfits(value, part, root, place, depth), None) is None

    for part in schema.get("allOf", ()):
        yield from _misfits(value, part, root, place, depth)
    if "anyOf" in schema and not any(map(fits, schema["anyOf"])):
        yield f"{place} fits none of the choices"
    if "oneOf" in schema and sum(map(fits, schema["oneOf"])) != 1:
        yield f"{place} does not fit exactly one of the choices"
    if "not" in schema and fits(schema["not"]):
        yield f"{place} is what it must not be"


def _object_misfits(
    value: Mapping[str, Any], schema: Mapping[str, Any], root: Any, place: str, depth: int
) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{place}.{name} is missing"
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for name, entry in value.items():
        yield from _misfits(entry, properties.get(name, others), root, f"{place}.{name}", depth)


def _repeats(values: list[Any]) -> bool:
    return any(_same(one, other) for number, one in enumerate(values) for other in values[:number])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    """Compare as JSON does: true is not 1, and 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
    return bool(one == other)

"""Check answers against a JSON Schema, for the part of JSON Schema that describes structure."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

Schema = Mapping[str, Any] | bool
_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_ANNOTATIONS = {
    "$comment", "$id", "$schema", "default", "deprecated", "description", "examples", "format", "readOnly", "title",
    "writeOnly",
}  # fmt: skip
_SCHEMAS = ("additionalProperties", "items", "not")
_LISTS = ("allOf", "anyOf", "oneOf")
_NAMED = ("$defs", "definitions", "properties")
_MAX_DEPTH = 40
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
_KNOWN = {
    *_ANNOTATIONS,
    *_SCHEMAS,
    *_LISTS,
    *_NAMED,
    *_BOUNDS,
    "$ref",
    "const",
    "enum",
    "required",
    "type",
    "uniqueItems",
}


def find_schema_problem(schema: Any) -> str:
    """Return what in a schema is unsupported, as the end of a sentence; empty for a usable one."""
    try:
        _check_schema(schema, schema, 0)
    except _InvalidSchema as error:
        return str(error)
    return ""


def parse_answer(text: str) -> Any:
    """Return the JSON in an answer, also inside a fence or other text; raises `ValueError` if there is none."""
    for candidate in _candidates(text):
        try:
            return msgspec.json.decode(candidate)
        except (msgspec.DecodeError, RecursionError):
            continue
    raise ValueError("the answer is not JSON")


def find_mismatch(value: Any, schema: Any) -> str:
    """Return the first mismatch of a value with a schema, with its path; empty if it matches."""
    return next(_find_mismatches(value, schema, schema, "answer"), "")


class _InvalidSchema(ValueError):
    """A schema that can't be used."""


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
        raise _InvalidSchema("a schema must be an object")
    if depth > _MAX_DEPTH:
        raise _InvalidSchema("it is nested too deeply")
    if unknown := sorted(schema.keys() - _KNOWN):
        raise _InvalidSchema(f"`{unknown[0]}` is not supported; remove it")
    if "$ref" in schema:
        _resolve_reference(schema["$ref"], root)
    _check_keywords(schema)
    for inner in _subschemas(schema):
        _check_schema(inner, root, depth + 1)


def _check_keywords(schema: Mapping[str, Any]) -> None:
    types = schema.get("type", [])
    for name in [types] if isinstance(types, str) else types:
        if name not in _TYPES:
            raise _InvalidSchema(f"there is no type `{name}`")
    if not all(_is_number(schema[name]) for name in _BOUNDS if name in schema):
        raise _InvalidSchema("a bound must be a number")
    if not isinstance(schema.get("enum", []), list) or not isinstance(schema.get("required", []), list):
        raise _InvalidSchema("`enum` and `required` must be lists")


def _subschemas(schema: Mapping[str, Any]) -> Iterator[Any]:
    yield from (schema[name] for name in _SCHEMAS if name in schema)
    for name in _LISTS:
        if not isinstance(schema.get(name, []), list):
            raise _InvalidSchema(f"`{name}` must be a list")
        yield from schema.get(name, [])
    for name in _NAMED:
        if not isinstance(schema.get(name, {}), dict):
            raise _InvalidSchema(f"`{name}` must be an object")
        yield from schema.get(name, {}).values()


def _resolve_reference(reference: Any, root: Any) -> Any:
    found = root
    for step in str(reference).removeprefix("#").strip("/").split("/"):
        if step and (not isinstance(found, dict) or step not in found):
            raise _InvalidSchema(f"`{reference}` points to nothing")
        found = found[step] if step else found
    return found


def _find_mismatches(value: Any, schema: Any, root: Any, path: str, depth: int = 0) -> Iterator[str]:
    if schema is True:
        return
    if schema is False:
        yield f"{path} is not allowed"
        return
    if depth > _MAX_DEPTH:
        yield f"{path} is nested too deeply"
        return
    if "$ref" in schema:
        yield from _find_mismatches(value, _resolve_reference(schema["$ref"], root), root, path, depth + 1)
    yield from _value_mismatches(value, schema, path)
    yield from _composed_mismatches(value, schema, root, path, depth + 1)
    if isinstance(value, dict):
        yield from _object_mismatches(value, schema, root, path, depth + 1)
    if isinstance(value, list) and "items" in schema:
        for number, entry in enumerate(value):
            yield from _find_mismatches(entry, schema["items"], root, f"{path}[{number}]", depth + 1)


def _value_mismatches(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    types = schema.get("type", [])
    names = [types] if isinstance(types, str) else types
    if names and not any(_TYPES[name](value) for name in names):
        yield f"{path} is not of type {' or '.join(names)}"
    if "enum" in schema and not any(_is_equal(value, choice) for choice in schema["enum"]):
        yield f"{path} is none of {msgspec.json.encode(schema['enum']).decode()}"
    if "const" in schema and not _is_equal(value, schema["const"]):
        yield f"{path} is not {msgspec.json.encode(schema['const']).decode()}"
    for name, (fits, message) in _BOUNDS.items():
        if name in schema and not fits(value, schema[name]):
            yield f"{path} {message.format(schema[name])}"
    if schema.get("uniqueItems") is True and isinstance(value, list) and _has_duplicates(value):
        yield f"{path} contains the same item twice"


def _composed_mismatches(value: Any, schema: Mapping[str, Any], root: Any, path: str, depth: int) -> Iterator[str]:
    def fits(part: Any) -> bool:
        return next(_find_mismatches(value, part, root, path, depth), None) is None

    for part in schema.get("allOf", ()):
        yield from _find_mismatches(value, part, root, path, depth)
    if "anyOf" in schema and not any(map(fits, schema["anyOf"])):
        yield f"{path} matches none of the choices"
    if "oneOf" in schema and sum(map(fits, schema["oneOf"])) != 1:
        yield f"{path} doesn't match exactly one of the choices"
    if "not" in schema and fits(schema["not"]):
        yield f"{path} matches a schema that is excluded"


def _object_mismatches(
    value: Mapping[str, Any], schema: Mapping[str, Any], root: Any, path: str, depth: int
) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name} is missing"
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties", True)
    for name, entry in value.items():
        yield from _find_mismatches(entry, properties.get(name, others), root, f"{path}.{name}", depth)


def _has_duplicates(values: list[Any]) -> bool:
    return any(_is_equal(one, other) for number, one in enumerate(values) for other in values[:number])


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_equal(one: Any, other: Any) -> bool:
    """Compare as JSON does: true is not 1, and 1 is 1.0."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_equal, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_equal(value, other[name]) for name, value in one.items())
    return bool(one == other)

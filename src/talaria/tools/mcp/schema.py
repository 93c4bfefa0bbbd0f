"""Make an argument type of a JSON schema that came from elsewhere, without losing a word of it."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Json = Mapping[str, Any]
_SIMPLE: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool}
_DEEPEST = 12


def struct_of(name: str, schema: Json) -> type[Struct]:
    """Return a struct whose JSON schema is this one: what is simple is checked here, all else by the server."""
    required = set(schema.get("required", ()))
    fields: list[Any] = []
    names: dict[str, str] = {}
    for number, (key, value) in enumerate(schema.get("properties", {}).items()):
        names[f"field_{number}"] = key
        kind = _kind(_inlined(value, schema, 0))
        fields.append((f"field_{number}", kind) if key in required else (f"field_{number}", kind | UnsetType, UNSET))
    return msgspec.defstruct(name, fields, rename=names, kw_only=True, frozen=True)


def values_of(arguments: Struct) -> dict[str, Any]:
    """Return what was given, by the names of the schema."""
    values: dict[str, Any] = msgspec.to_builtins(arguments)
    return values


def _kind(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return Any
    base = _SIMPLE.get(schema["type"], Any) if isinstance(schema.get("type"), str) and "enum" not in schema else Any
    return Annotated[base, Meta(extra_json_schema=schema)]


def _inlined(schema: Any, root: Json, depth: int) -> Any:
    """Return a schema with every reference replaced by what it stands for; endless ones end in anything."""
    if isinstance(schema, list):
        return [_inlined(one, root, depth + 1) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if depth > _DEEPEST:
        return {}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        return _inlined({**_target(reference, root), **beside}, root, depth + 1)
    return {key: _inlined(value, root, depth + 1) for key, value in schema.items()}


def _target(reference: str, root: Json) -> dict[str, Any]:
    place: Any = root
    for key in reference.removeprefix("#").strip("/").split("/"):
        place = place.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(place, Mapping) else None
    return dict(place) if isinstance(place, Mapping) else {}

"""The JSON schema of a tool's arguments, as short as a model can do with."""

from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

from talaria.contracts.provider import ToolSpec
from talaria.contracts.tool import Tool

_NOISE = ("title", "default", "$defs")
_NULL = {"type": "null"}
_KEPT = 256  # schemas: those of a conversation's tools are those of the next one


def describe(tool: Tool) -> ToolSpec:
    """Return what a model is told of a tool: always the same bytes for the same tool.

    The descriptions of fields are for the model; the docstrings of structs and enums are not.
    """
    return ToolSpec(tool.name, tool.description, _parameters(tool.arguments))


@lru_cache(_KEPT)
def _parameters(arguments: Any) -> Raw:
    schema = msgspec.json.schema(arguments)
    return Raw(msgspec.json.encode(_shortened(schema, schema.get("$defs", {})), order="deterministic"))


def _shortened(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_shortened(entry, definitions) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _shortened(_resolved(schema, definitions), definitions)
    if _NULL in schema.get("anyOf", ()):
        return _shortened(_without_null(schema), definitions)
    return {
        name: _properties(value, definitions) if name == "properties" else _shortened(value, definitions)
        for name, value in schema.items()
        if name not in _NOISE and not (name == "required" and not value)
    }


def _properties(properties: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    return {name: _shortened(value, definitions) for name, value in properties.items()}


def _resolved(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return what a reference stands for, in the words of the field that refers to it."""
    meant = definitions[schema["$ref"].rpartition("/")[2]]
    fixed = {name: value for name, value in meant.items() if name != "description"}
    return fixed | {name: value for name, value in schema.items() if name != "$ref"}


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return what a value may be beside null: leaving it out says the same."""
    choices = [choice for choice in schema["anyOf"] if choice != _NULL]
    others = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**choices[0], **others} if len(choices) == 1 else {"anyOf": choices, **others}

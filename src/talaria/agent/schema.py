"""The JSON schema of a tool's arguments, as short as a model can do with."""

from typing import Any

import msgspec
from msgspec import Raw

from talaria.contracts.provider import ToolSpec
from talaria.contracts.tool import Tool

_NOISE = ("title", "default")


def describe(tool: Tool) -> ToolSpec:
    """Return what a model is told of a tool: always the same bytes for the same tool."""
    schema = msgspec.json.schema(tool.arguments)
    parameters = _shortened(schema, schema.get("$defs", {}))
    return ToolSpec(tool.name, tool.description, Raw(msgspec.json.encode(parameters, order="deterministic")))


def _shortened(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_shortened(entry, definitions) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _shortened(definitions[schema["$ref"].rpartition("/")[2]], definitions)
    optional = _without_null(schema)
    if optional is not None:
        return _shortened(optional, definitions)
    return {
        name: _properties(value, definitions) if name == "properties" else _shortened(value, definitions)
        for name, value in schema.items()
        if name not in _NOISE and name != "$defs" and not (name == "required" and not value)
    }


def _properties(properties: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    return {name: _shortened(value, definitions) for name, value in properties.items()}


def _without_null(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return what a value may be beside null: leaving it out says the same."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) != 1:
        return None
    return {**choices[0], **{name: value for name, value in schema.items() if name not in ("anyOf", *_NOISE)}}

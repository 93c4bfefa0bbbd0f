"""The tools of one agent: their descriptions for the model, and parsing of its calls."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, cast

import msgspec
from msgspec import Raw, Struct

from talaria.contracts.provider import ToolSpec
from talaria.contracts.tool import Call, ProposedAction, RemoteArguments, Tool, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.messages import ToolCall

_NOISE = ("title", "default", "$defs")
_NULL = {"type": "null"}
_CACHE_SIZE = 256  # schemas; sessions share most of their tools


def describe_tool(tool: Tool) -> ToolSpec:
    """Return the description of a tool for a model: always the same bytes for the same tool.

    Descriptions of fields are included; the docstrings of structs and enums are not.
    """
    return ToolSpec(tool.name, tool.description, _build_parameters(tool.arguments))


@lru_cache(_CACHE_SIZE)
def _build_parameters(arguments: Any) -> Raw:
    schema = msgspec.json.schema(arguments)
    return Raw(msgspec.json.encode(_simplify(schema, schema.get("$defs", {})), order="deterministic"))


def _simplify(schema: Any, definitions: dict[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_simplify(entry, definitions) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _simplify(_resolve_reference(schema, definitions), definitions)
    if _NULL in schema.get("anyOf", ()):
        return _simplify(_remove_null(schema), definitions)
    return {
        name: _simplify_properties(value, definitions) if name == "properties" else _simplify(value, definitions)
        for name, value in schema.items()
        if name not in _NOISE and not (name == "required" and not value)
    }


def _simplify_properties(properties: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    return {name: _simplify(value, definitions) for name, value in properties.items()}


def _resolve_reference(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the definition that a reference names, described as the referring field does."""
    matches = definitions[schema["$ref"].rpartition("/")[2]]
    fixed = {name: value for name, value in matches.items() if name != "description"}
    return fixed | {name: value for name, value in schema.items() if name != "$ref"}


def _remove_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without null: omitting the value means the same."""
    choices = [choice for choice in schema["anyOf"] if choice != _NULL]
    others = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**choices[0], **others} if len(choices) == 1 else {"anyOf": choices, **others}


_FENCE = r"(?s)\A```\w*\n(.*?)\n?```\Z"
_STRING_OR_LAST_COMMA = r"""("(?:[^"\\]|\\.)*+"?)|,(?=\s*[}\]])"""


class LazyTool:
    """A tool that is described by its class and constructed on its first call; implements `Tool`.

    ``construct`` is called at most once, in the event loop.
    """

    __slots__ = ("_construct", "_tool", "arguments", "description", "effect", "name")

    def __init__(self, kind: type[Tool], construct: Callable[[], Tool]) -> None:
        described = cast("Tool", kind)  # the attributes that a model reads stand on the class
        self.name = described.name
        self.description = described.description
        self.effect = described.effect
        self.arguments = described.arguments
        self._construct = construct
        self._tool: Tool | None = None

    def proposed_action(self, arguments: Any) -> ProposedAction:
        """Return what these arguments would do."""
        return self._get_tool().proposed_action(arguments)

    async def run(self, arguments: Any, call: Call) -> ToolOutput:
        """Run the tool, or raise `ToolFailed`."""
        return await self._get_tool().run(arguments, call)

    def _get_tool(self) -> Tool:
        if self._tool is None:
            self._tool = self._construct()
        return self._tool


class ToolInvocation(Struct, frozen=True):
    """A parsed call: a tool and arguments that fit it."""

    call: ToolCall
    tool: Tool
    arguments: Any


class Toolbox:
    """The tools of one agent, sorted by name and fixed for its life: the prefix of requests is stable."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.name)}
        self.specs = tuple(describe_tool(tool) for tool in self._tools.values())

    def parse_call(self, call: ToolCall) -> ToolInvocation:
        """Return the tool and arguments of a call, repaired where that is safe; raise `ToolFailed` otherwise."""
        tool = self._find(call.name)
        return ToolInvocation(call, tool, _parse_arguments(tool, call.arguments))

    def _find(self, name: str) -> Tool:
        if name in self._tools:
            return self._tools[name]
        matches = [known for known in self._tools if _normalize_name(known) == _normalize_name(name)]
        if len(matches) == 1:
            return self._tools[matches[0]]
        from difflib import get_close_matches  # noqa: PLC0415 (loaded when a model misspells a name)

        near = get_close_matches(name, self._tools, n=3)
        hint = f" Did you mean {' or '.join(near)}?" if near else f" Available: {', '.join(self._tools)}."
        raise ToolFailed(f"There is no tool {name}.{hint}")


def _parse_arguments(tool: Tool, text: str) -> Any:
    try:
        values = msgspec.json.decode(_repair_json(text))
        if isinstance(values, str) and values.lstrip().startswith("{"):
            values = msgspec.json.decode(_repair_json(values))
    except msgspec.DecodeError as error:
        raise ToolFailed(f"The arguments for {tool.name} are not JSON: {error}. Send one JSON object.") from error
    try:
        arguments = msgspec.convert(values, tool.arguments, strict=False)
    except msgspec.ValidationError as error:
        raise ToolFailed(f"Invalid arguments for {tool.name}: {error}. {_describe_expected(tool)}") from error
    known = arguments.__struct_encode_fields__
    if not values.keys() <= set(known):
        _refuse_unknown(tool, values, known)
    return arguments


def _refuse_unknown(tool: Tool, values: dict[str, Any], known: Sequence[str]) -> None:
    """Raise `ToolFailed` for arguments that a tool doesn't have, unless they have no value."""
    unknown = [f"`{name}`" for name, value in values.items() if name not in known and value is not None]
    if unknown and not issubclass(tool.arguments, RemoteArguments):
        raise ToolFailed(f"{tool.name} has no argument {' or '.join(unknown)}. {_describe_expected(tool)}")


def _repair_json(text: str) -> str:
    """Return JSON for empty arguments, without a fence around it and without trailing commas."""
    text = text.strip() or "{}"
    fenced = re.match(_FENCE, text)
    text = fenced[1] if fenced else text
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return re.sub(_STRING_OR_LAST_COMMA, lambda found: found[1] or "", text)
    return text


def _describe_expected(tool: Tool) -> str:
    return f"Expected: {bytes(describe_tool(tool).parameters).decode()}"


def _normalize_name(name: str) -> str:
    return name.rpartition(".")[2].replace("-", "_").casefold()

"""Tools, resources and prompts of an MCP server, wrapped as tools, and their results in our own types."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Protocol

import msgspec
from mcp.types import (
    Tool as McpTool,
)
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    Prompt,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from msgspec import UNSET, Meta, Struct, UnsetType

from talaria.contracts.mcp import PromptArgument, ServerPrompt
from talaria.contracts.tool import Call, Effect, ProposedAction, RemoteArguments, Tool, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.messages import Image, Part, Text

Json = Mapping[str, Any]
_SIMPLE: dict[str, Any] = {"string": str, "integer": int, "number": float, "boolean": bool}
_DEEPEST = 12
_LONGEST_NAME = 64
_LONGEST_DESCRIPTION = 1_000
_LONGEST_LIST = 400
_SOURCE = "an MCP server"


def define_struct(name: str, schema: Json) -> type[Struct]:
    """Return a struct with this JSON schema: simple types are checked here, everything else by the server."""
    required = set(schema.get("required", ()))
    fields: list[Any] = []
    names: dict[str, str] = {}
    for number, (key, value) in enumerate(schema.get("properties", {}).items()):
        names[f"field_{number}"] = key
        kind = _make_type(_inline_references(value, schema, 0))
        fields.append((f"field_{number}", kind) if key in required else (f"field_{number}", kind | UnsetType, UNSET))
    return msgspec.defstruct(name, fields, bases=(RemoteArguments,), rename=names, kw_only=True, frozen=True)


def extract_values(arguments: Struct) -> dict[str, Any]:
    """Return the given values by their names in the schema."""
    values: dict[str, Any] = msgspec.to_builtins(arguments)
    return values


class Offer(Struct, frozen=True):
    """A tool as the server describes it."""

    name: str
    description: str
    schema: dict[str, Any]
    effect: Effect


class Offers(Struct, frozen=True):
    """Everything a server offers: tools, resources by URI or template of one, prompts."""

    tools: tuple[Offer, ...] = ()
    resources: tuple[str, ...] = ()
    prompts: tuple[ServerPrompt, ...] = ()


class Remote(Protocol):
    """A server, connected or not; calls raise `ToolFailed` if it isn't."""

    name: str

    async def call_tool(self, name: str, arguments: dict[str, Any], call: Call) -> ToolOutput:
        """Run a tool on the server; its progress is shown, and its questions are asked, through ``call``."""

    async def read_resource(self, uri: str) -> ToolOutput:
        """Return a resource of the server."""

    async def get_prompt(self, name: str, arguments: Mapping[str, str]) -> ToolOutput:
        """Return a prompt of the server, filled in."""


def make_tools(remote: Remote, offers: Offers) -> list[Tool]:
    """Return everything that a server offers as tools."""
    tools: list[Tool] = [RemoteTool(remote, offer) for offer in offers.tools]
    if offers.resources:
        tools.append(ReadResource(remote, offers.resources))
    if offers.prompts:
        tools.append(GetPrompt(remote, offers.prompts))
    return tools


class RemoteTool:
    """One tool of a server."""

    def __init__(self, remote: Remote, offer: Offer) -> None:
        self.name = _make_full_name(remote.name, offer.name)
        self.description = _cut(offer.description or offer.name, _LONGEST_DESCRIPTION)
        self.effect = offer.effect
        self.arguments = define_struct(self.name, offer.schema)
        self._remote = remote
        self._tool = offer.name

    def proposed_action(self, arguments: Struct) -> ProposedAction:
        """Describe the call."""
        return ProposedAction("other", f"{self._remote.name}: {self._tool} {msgspec.json.encode(arguments).decode()}")

    async def run(self, arguments: Struct, call: Call) -> ToolOutput:
        """Run the tool on the server."""
        return await self._remote.call_tool(self._tool, extract_values(arguments), call)


class ReadResourceArguments(Struct, frozen=True):
    """A resource to read."""

    uri: str


class ReadResource:
    """The tool that reads resources of a server."""

    effect = Effect.READS
    arguments: type[Struct] = ReadResourceArguments

    def __init__(self, remote: Remote, resources: Sequence[str]) -> None:
        self.name = _make_full_name(remote.name, "read_resource")
        self.description = f"Read a resource from {remote.name}: {_cut(', '.join(resources), _LONGEST_LIST)}"
        self._remote = remote

    def proposed_action(self, arguments: ReadResourceArguments) -> ProposedAction:
        """Describe what is read."""
        return ProposedAction("other", f"{self._remote.name}: read {arguments.uri}")

    async def run(self, arguments: ReadResourceArguments, call: Call) -> ToolOutput:
        """Return the resource."""
        return await self._remote.read_resource(arguments.uri)


class GetPromptArguments(Struct, frozen=True):
    """A prompt and its arguments."""

    name: str
    arguments: Annotated[dict[str, str], Meta(description="Values by name")] = {}


class GetPrompt:
    """The tool that gets prompts of a server."""

    effect = Effect.READS
    arguments: type[Struct] = GetPromptArguments

    def __init__(self, remote: Remote, prompts: Sequence[ServerPrompt]) -> None:
        self.name = _make_full_name(remote.name, "get_prompt")
        listed = ", ".join(map(_describe_prompt, prompts))
        self.description = f"Get a prompt from {remote.name}: {_cut(listed, _LONGEST_LIST)}"
        self._remote = remote

    def proposed_action(self, arguments: GetPromptArguments) -> ProposedAction:
        """Describe the requested prompt."""
        return ProposedAction("other", f"{self._remote.name}: prompt {arguments.name}")

    async def run(self, arguments: GetPromptArguments, call: Call) -> ToolOutput:
        """Return the prompt, filled in."""
        return await self._remote.get_prompt(arguments.name, arguments.arguments)


def make_offer(tool: McpTool) -> Offer:
    """Return our description of a tool; an undeclared effect counts as irreversible."""
    hints = tool.annotations
    effect = Effect.IRREVERSIBLE
    if hints is not None and hints.read_only_hint:
        effect = Effect.READS
    elif hints is not None and hints.idempotent_hint:
        effect = Effect.IDEMPOTENT
    return Offer(tool.name, tool.description or tool.title or "", tool.input_schema, effect)


def make_prompt(server: str, prompt: Prompt) -> ServerPrompt:
    """Return our description of a prompt."""
    arguments = tuple(
        PromptArgument(one.name, one.description or "", bool(one.required)) for one in prompt.arguments or ()
    )
    return ServerPrompt(server, prompt.name, prompt.description or prompt.title or "", arguments)


def convert_tool_result(result: CallToolResult) -> ToolOutput:
    """Return the result of a tool, or raise `ToolFailed` if it reports a failure."""
    output = _convert_blocks(result.content)
    if not output.text and result.structured_content is not None:
        output = ToolOutput(msgspec.json.encode(result.structured_content).decode(), output.images, source=_SOURCE)
    if result.is_error:
        raise ToolFailed(output.text or "the tool failed without an error message")
    return output if output.text or output.images else ToolOutput("(no output)")


def convert_resource(result: ReadResourceResult) -> ToolOutput:
    """Return the content of a resource; images are shown to a model that sees."""
    blobs = [one for one in result.contents if isinstance(one, BlobResourceContents)]
    images = tuple(_make_image(one.blob, one.mime_type) for one in blobs if (one.mime_type or "").startswith("image/"))
    text = "\n\n".join(_format_resource(one) for one in result.contents) or "(empty)"
    return ToolOutput(text, images, source=_SOURCE)


def convert_prompt(result: GetPromptResult) -> ToolOutput:
    """Return the messages of a prompt."""
    return ToolOutput(
        "\n\n".join(f"{one.role}: {_format_block(one.content)}" for one in result.messages) or "(empty)", source=_SOURCE
    )


def list_prompt_parts(result: GetPromptResult) -> list[Part]:
    """Return the messages of a prompt as the parts of one message; those of the assistant are marked."""
    parts: list[Part] = []
    for one in result.messages:
        if isinstance(one.content, ImageContent):
            parts.append(_make_image(one.content.data, one.content.mime_type))
        else:
            lead = "" if one.role == "user" else f"{one.role}: "
            parts.append(Text(f"{lead}{_format_block(one.content)}"))
    return parts


def _make_type(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return Any
    base = _SIMPLE.get(schema["type"], Any) if isinstance(schema.get("type"), str) and "enum" not in schema else Any
    return Annotated[base, Meta(extra_json_schema=schema)]


def _inline_references(schema: Any, root: Json, depth: int) -> Any:
    """Return a schema with every reference replaced by its target; recursive ones end in any value."""
    if isinstance(schema, list):
        return [_inline_references(one, root, depth + 1) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if depth > _DEEPEST:
        return {}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        siblings = {key: value for key, value in schema.items() if key != "$ref"}
        return _inline_references({**_resolve_reference(reference, root), **siblings}, root, depth + 1)
    return {key: _inline_references(value, root, depth + 1) for key, value in schema.items()}


def _resolve_reference(reference: str, root: Json) -> dict[str, Any]:
    node: Any = root
    for key in reference.removeprefix("#").strip("/").split("/"):
        node = node.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(node, Mapping) else None
    return dict(node) if isinstance(node, Mapping) else {}


def _make_full_name(server: str, tool: str) -> str:
    """Return a name that every provider accepts; a shortened one stays unique."""
    name = re.sub(r"[^A-Za-z0-9_-]", "_", f"mcp_{server}_{tool}")
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _describe_prompt(prompt: ServerPrompt) -> str:
    """Return the name of a prompt and its arguments."""
    names = ", ".join(one.name if one.required else f"{one.name}?" for one in prompt.arguments)
    return f"{prompt.name}({names})"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _make_image(data: str, mime_type: str | None) -> Image:
    kind = mime_type or "image/png"
    return Image(f"data:{kind};base64,{data}", kind)


def _convert_blocks(blocks: list[ContentBlock]) -> ToolOutput:
    pictures = tuple(_make_image(block.data, block.mime_type) for block in blocks if isinstance(block, ImageContent))
    return ToolOutput("\n\n".join(filter(None, map(_format_block, blocks))), pictures, source=_SOURCE)


def _format_block(block: ContentBlock) -> str:
    match block:
        case TextContent():
            return block.text
        case ImageContent():
            return f"[image, {block.mime_type}]"
        case AudioContent():
            return f"[audio, {block.mime_type}]"
        case ResourceLink():
            return f"{block.name}: {block.uri}"
        case EmbeddedResource():
            return _format_resource(block.resource)


def _format_resource(contents: TextResourceContents | BlobResourceContents) -> str:
    if isinstance(contents, TextResourceContents):
        return contents.text
    return f"[{contents.uri}: {contents.mime_type or 'binary'}, {len(contents.blob) * 3 // 4:,} bytes]"

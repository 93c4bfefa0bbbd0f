"""Translate the MCP library's types into ours. Imported with the MCP library."""

import msgspec
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
    Tool,
)

from talaria.contracts.tool import Effect, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.messages import Image
from talaria.tools.mcp.remote_tools import Offer

_SOURCE = "an MCP server"


def offer_of(tool: Tool) -> Offer:
    """Return our description of a tool; an undeclared effect counts as irreversible."""
    hints = tool.annotations
    effect = Effect.IRREVERSIBLE
    if hints is not None and hints.read_only_hint:
        effect = Effect.READS
    elif hints is not None and hints.idempotent_hint:
        effect = Effect.IDEMPOTENT
    return Offer(tool.name, tool.description or tool.title or "", tool.input_schema, effect)


def prompt_in_words(prompt: Prompt) -> str:
    """Return the name of a prompt and its arguments."""
    names = ", ".join(one.name if one.required else f"{one.name}?" for one in prompt.arguments or ())
    return f"{prompt.name}({names})"


def tool_output(result: CallToolResult) -> ToolOutput:
    """Return the result of a tool, or raise `ToolFailed` if it reports a failure."""
    output = _output(result.content)
    if not output.text and result.structured_content is not None:
        output = ToolOutput(msgspec.json.encode(result.structured_content).decode(), output.images, _SOURCE)
    if result.is_error:
        raise ToolFailed(output.text or "the tool failed without an error message")
    return output if output.text or output.images else ToolOutput("(no output)")


def resource_output(result: ReadResourceResult) -> ToolOutput:
    """Return the content of a resource."""
    return ToolOutput("\n\n".join(_resource(one) for one in result.contents) or "(empty)", source=_SOURCE)


def prompt_output(result: GetPromptResult) -> ToolOutput:
    """Return the messages of a prompt."""
    return ToolOutput(
        "\n\n".join(f"{one.role}: {_words(one.content)}" for one in result.messages) or "(empty)", source=_SOURCE
    )


def _output(blocks: list[ContentBlock]) -> ToolOutput:
    pictures = tuple(
        Image(f"data:{block.mime_type};base64,{block.data}", block.mime_type)
        for block in blocks
        if isinstance(block, ImageContent)
    )
    return ToolOutput("\n\n".join(filter(None, map(_words, blocks))), pictures, _SOURCE)


def _words(block: ContentBlock) -> str:
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
            return _resource(block.resource)


def _resource(contents: TextResourceContents | BlobResourceContents) -> str:
    if isinstance(contents, TextResourceContents):
        return contents.text
    return f"[{contents.uri}: {contents.mime_type or 'binary'}, {len(contents.blob) * 3 // 4:,} bytes]"

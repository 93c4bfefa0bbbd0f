"""Translation between the types of the MCP library and ours: tools, results, resources and prompts."""

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

from talaria.contracts.mcp import PromptArgument, ServerPrompt
from talaria.contracts.tool import Effect, ToolOutput
from talaria.core.errors import ToolFailed
from talaria.core.messages import Image, Part, Text
from talaria.tools.mcp.remote_tools import Offer

_SOURCE = "an MCP server"


def offer_of(tool: McpTool) -> Offer:
    """Return our description of a tool; an undeclared effect counts as irreversible."""
    hints = tool.annotations
    effect = Effect.IRREVERSIBLE
    if hints is not None and hints.read_only_hint:
        effect = Effect.READS
    elif hints is not None and hints.idempotent_hint:
        effect = Effect.IDEMPOTENT
    return Offer(tool.name, tool.description or tool.title or "", tool.input_schema, effect)


def prompt_of(server: str, prompt: Prompt) -> ServerPrompt:
    """Return our description of a prompt."""
    arguments = tuple(
        PromptArgument(one.name, one.description or "", bool(one.required)) for one in prompt.arguments or ()
    )
    return ServerPrompt(server, prompt.name, prompt.description or prompt.title or "", arguments)


def tool_output(result: CallToolResult) -> ToolOutput:
    """Return the result of a tool, or raise `ToolFailed` if it reports a failure."""
    output = _output(result.content)
    if not output.text and result.structured_content is not None:
        output = ToolOutput(msgspec.json.encode(result.structured_content).decode(), output.images, source=_SOURCE)
    if result.is_error:
        raise ToolFailed(output.text or "the tool failed without an error message")
    return output if output.text or output.images else ToolOutput("(no output)")


def resource_output(result: ReadResourceResult) -> ToolOutput:
    """Return the content of a resource; images are shown to a model that sees."""
    blobs = [one for one in result.contents if isinstance(one, BlobResourceContents)]
    images = tuple(_image(one.blob, one.mime_type) for one in blobs if (one.mime_type or "").startswith("image/"))
    text = "\n\n".join(_resource(one) for one in result.contents) or "(empty)"
    return ToolOutput(text, images, source=_SOURCE)


def prompt_output(result: GetPromptResult) -> ToolOutput:
    """Return the messages of a prompt."""
    return ToolOutput(
        "\n\n".join(f"{one.role}: {_words(one.content)}" for one in result.messages) or "(empty)", source=_SOURCE
    )


def prompt_parts(result: GetPromptResult) -> list[Part]:
    """Return the messages of a prompt as the parts of one message; those of the assistant are marked."""
    parts: list[Part] = []
    for one in result.messages:
        if isinstance(one.content, ImageContent):
            parts.append(_image(one.content.data, one.content.mime_type))
        else:
            lead = "" if one.role == "user" else f"{one.role}: "
            parts.append(Text(f"{lead}{_words(one.content)}"))
    return parts


def _image(data: str, mime_type: str | None) -> Image:
    kind = mime_type or "image/png"
    return Image(f"data:{kind};base64,{data}", kind)


def _output(blocks: list[ContentBlock]) -> ToolOutput:
    pictures = tuple(_image(block.data, block.mime_type) for block in blocks if isinstance(block, ImageContent))
    return ToolOutput("\n\n".join(filter(None, map(_words, blocks))), pictures, source=_SOURCE)


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

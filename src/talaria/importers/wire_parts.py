"""Message parts from the formats in which other agents store them: those of OpenAI and Anthropic."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from talaria.core.messages import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult, text_of
from talaria.importers.foreign_files import as_list, as_table, as_text

_TEXTS = {"text", "input_text", "output_text"}
_IMAGES = {"image", "image_url", "input_image"}
_FILES = {"document", "file", "input_file"}
_CALLS = {"tool_use", "toolCall", "tool_call", "server_tool_use"}
_THOUGHTS = {"thinking", "reasoning"}


def read_content(content: Any) -> list[Part]:
    """Return the parts of a content: text, or a list of blocks of either format."""
    if isinstance(content, str):
        return [Text(as_text(content))] if content else []
    if isinstance(content, dict):
        content = [content]
    return [part for block in as_list(content) for part in _read_block(block)]


def _read_block(block: Any) -> Iterable[Part]:
    if isinstance(block, str):
        return [Text(as_text(block))] if block else []
    fields = as_table(block)
    kind = fields.get("type")
    if kind in _TEXTS:
        text = as_text(fields.get("text"))
        return [Text(text)] if text else []
    if kind in _IMAGES:
        return _read_image(fields)
    if kind in _FILES:
        return _read_file(fields)
    if kind in _THOUGHTS:
        text = as_text(fields.get("thinking")) or as_text(fields.get("text"))
        return [Reasoning(text)] if text else []
    if kind in _CALLS:
        return [read_call(fields)]
    if kind == "tool_result":
        return read_result(fields)
    if kind == "redacted_thinking":
        return []
    return [Text(f"[{kind or 'part'}: {_to_json(fields)}]")]


def read_call(fields: Mapping[str, Any]) -> ToolCall:
    """Return a tool call of either format."""
    function = as_table(fields.get("function"))
    arguments = function.get("arguments", fields.get("arguments", fields.get("input", {})))
    text = as_text(arguments) if isinstance(arguments, str) else _to_json(arguments)
    name = as_text(function.get("name")) or as_text(fields.get("name"))
    return ToolCall(as_text(fields.get("id")) or as_text(fields.get("call_id")), name or "unknown", text or "{}")


def read_result(fields: Mapping[str, Any]) -> list[Part]:
    """Return the result of a call, and the images in it after it."""
    parts = read_content(fields.get("content"))
    failed = bool(fields.get("is_error") or fields.get("isError"))
    call_id = as_text(fields.get("tool_use_id")) or as_text(fields.get("call_id")) or as_text(fields.get("toolCallId"))
    return [
        ToolResult(call_id, text_of(tuple(parts)), failed),
        *(one for one in parts if isinstance(one, Image | File)),
    ]


def _read_image(fields: Mapping[str, Any]) -> list[Part]:
    address = fields.get("image_url")
    url = as_text(address) or as_text(as_table(address).get("url")) or as_text(fields.get("url"))
    source = as_table(fields.get("source"))
    media_type = as_text(source.get("media_type")) or as_text(fields.get("mimeType")) or "image/png"
    data = as_text(source.get("data")) or as_text(fields.get("data"))
    url = url or as_text(source.get("url")) or (f"data:{media_type};base64,{data}" if data else "")
    if url.startswith("data:"):
        media_type = url[5:].partition(";")[0] or media_type
    return [Image(url, media_type)] if url else [Text("[image without data]")]


def _read_file(fields: Mapping[str, Any]) -> list[Part]:
    source = as_table(fields.get("source")) or as_table(fields.get("file")) or fields
    name = as_text(fields.get("title")) or as_text(source.get("filename")) or "document"
    if source.get("type") == "text":
        return [Text(as_text(source.get("data")))]
    media_type = as_text(source.get("media_type")) or "application/octet-stream"
    data = as_text(source.get("file_data")) or as_text(source.get("data"))
    if data and not data.startswith("data:"):
        data = f"data:{media_type};base64,{data}"
    return [File(data, name, media_type)] if data else [Text(f"[file {name} without data]")]


def is_same_message(one: Message, other: Message) -> bool:
    """Return whether two messages say the same, whenever they were said and whatever was thought."""
    return one.role == other.role and _drop_reasoning(one.parts) == _drop_reasoning(other.parts)


def count_shared(messages: Sequence[Message], others: Sequence[Message]) -> int:
    """Return how many messages at the beginning of two transcripts are the same."""
    count = 0
    for one, other in zip(messages, others, strict=False):
        if not is_same_message(one, other):
            break
        count += 1
    return count


def _drop_reasoning(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    return tuple(part for part in parts if not isinstance(part, Reasoning))


def _to_json(value: Any) -> str:
    return as_text(json.dumps(value, ensure_ascii=False, default=str))

"""From our vocabulary to the body of a Messages request."""

import base64
import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Raw, Struct

from talaria.contracts.provider import ModelRequest
from talaria.core.messages import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult
from talaria.providers.anthropic.settings import AnthropicQuirks, AnthropicSettings
from talaria.providers.transcript import OPENING, note_on, reasoning_mark, repair, split_data_uri, wire_call_id

PROTOCOL = "anthropic"
REDACTED = "redacted:"
BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 24_576}
LEAST_BUDGET = 1024
_ENCODE = msgspec.json.Encoder().encode
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def encode(request: ModelRequest, settings: AnthropicSettings) -> bytes:
    """Return the body; messages stand last, so that a grown conversation only changes its end.

    Cache marks wander: they are no part of what is cached, so bytes of two requests are compared without them. One
    stands behind tools and system prompt; one at the end of the conversation and one where the last request ended,
    for the server looks back only 20 blocks. A request for structured output is asked once: no mark would pay.
    """
    messages = list(_messages(request, settings))
    max_tokens = request.max_output_tokens or settings.quirks.default_max_tokens
    thinking = _thinking(request, settings.quirks, messages, max_tokens)
    system = [_TextBlock(request.system)] if request.system else None
    tools = [_Tool(tool.name, tool.description, tool.parameters) for tool in request.tools] or None
    if settings.quirks.cache_marks and request.output_schema is None:
        _mark((system or tools or [None])[-1])
        _mark_ends(messages)
    return _ENCODE(
        _Body(
            model=request.model,
            max_tokens=max_tokens,
            stream=request.stream or None,
            temperature=request.temperature if thinking is None else None,
            thinking=thinking,
            output_config=_output_config(request, settings.quirks),
            tools=tools,
            system=system,
            messages=messages,
        )
    )


def is_shown(part: Image | File, quirks: AnthropicQuirks) -> bool:
    """Return whether the server can look at an attachment; else it is told of it in words."""
    if isinstance(part, Image):
        return quirks.images
    return quirks.documents and part.media_type in {"application/pdf", "text/plain"}


_Mark = dict[str, str] | None


class _Tool(Struct, omit_defaults=True):
    name: str
    description: str
    input_schema: Raw
    cache_control: _Mark = None


class _TextBlock(Struct, tag="text", tag_field="type", omit_defaults=True):
    text: str
    cache_control: _Mark = None


class _ImageBlock(Struct, tag="image", tag_field="type", omit_defaults=True):
    source: dict[str, str]
    cache_control: _Mark = None


class _DocumentBlock(Struct, tag="document", tag_field="type", omit_defaults=True):
    source: dict[str, str]
    title: str
    cache_control: _Mark = None


class _ThinkingBlock(Struct, tag="thinking", tag_field="type"):
    thinking: str
    signature: str


class _RedactedBlock(Struct, tag="redacted_thinking", tag_field="type"):
    data: str


class _ToolUse(Struct, tag="tool_use", tag_field="type", omit_defaults=True):
    id: str
    name: str
    input: Raw
    cache_control: _Mark = None


class _Result(Struct, tag="tool_result", tag_field="type", omit_defaults=True):
    tool_use_id: str
    content: str | None = None
    is_error: bool | None = None
    cache_control: _Mark = None


_Markable = _TextBlock | _ImageBlock | _DocumentBlock | _ToolUse | _Result
_Block = _Markable | _ThinkingBlock | _RedactedBlock


class _Message(Struct):
    role: str
    content: list[_Block]


class _OutputFormat(Struct, tag="json_schema", tag_field="type"):
    schema: Raw


class _OutputConfig(Struct, omit_defaults=True):
    effort: str | None = None
    format: _OutputFormat | None = None


class _Body(Struct, kw_only=True, omit_defaults=True):
    model: str
    max_tokens: int
    stream: bool | None = None
    temperature: float | None = None
    thinking: dict[str, str | int] | None = None
    output_config: _OutputConfig | None = None
    tools: list[_Tool] | None = None
    system: list[_TextBlock] | None = None
    messages: list[_Message]


def _mark(block: _Block | _Tool | None) -> None:
    if block is not None and not isinstance(block, _ThinkingBlock | _RedactedBlock):
        block.cache_control = {"type": "ephemeral"}


def _mark_ends(messages: Sequence[_Message]) -> None:
    """Mark the ends of the last two messages that are not the model's: where this request and the last one end."""
    for message in [message for message in messages if message.role == "user"][-2:]:
        _mark(message.content[-1])


def _has_budget(model: str, quirks: AnthropicQuirks) -> bool:
    return model.startswith(quirks.budget_models)


def _thinking(
    request: ModelRequest, quirks: AnthropicQuirks, messages: Sequence[_Message], max_tokens: int
) -> dict[str, str | int] | None:
    if not request.effort:
        return None
    if request.effort == "none":
        return {"type": "disabled"}
    if not _has_budget(request.model, quirks):
        return {"type": "adaptive"}
    budget = min(BUDGETS[request.effort], max_tokens // 2)
    return {"type": "enabled", "budget_tokens": budget} if budget >= LEAST_BUDGET and _may_think(messages) else None


def _may_think(messages: Sequence[_Message]) -> bool:
    """Return whether tools called right before were called with thinking: the server demands that they were."""
    answered = [message for message in messages[-2:] if isinstance(message.content[-1], _ToolUse)]
    return all(isinstance(message.content[0], _ThinkingBlock | _RedactedBlock) for message in answered)


def _output_config(request: ModelRequest, quirks: AnthropicQuirks) -> _OutputConfig | None:
    is_graded = request.effort not in {"", "none"} and not _has_budget(request.model, quirks)
    effort = request.effort.replace("minimal", "low") if is_graded else None
    schema = request.output_schema
    if effort is None and schema is None:
        return None
    return _OutputConfig(effort, None if schema is None else _OutputFormat(schema))


def _messages(request: ModelRequest, settings: AnthropicSettings) -> Iterator[_Message]:
    """Yield the conversation with roles that take turns, a user's first."""
    mark = reasoning_mark(PROTOCOL, settings.name)
    last: _Message | None = None
    for message in repair(request.messages, mark):
        role = "assistant" if message.role == "assistant" else "user"
        blocks = list(_blocks(message, settings.quirks, mark))
        if last is not None and last.role == role:
            last.content.extend(blocks)
            continue
        if last is not None:
            yield last
        elif role == "assistant":
            yield _Message("user", [_TextBlock(OPENING)])
        last = _Message(role, blocks)
    if last is not None:
        yield last


def _blocks(message: Message, quirks: AnthropicQuirks, mark: str) -> Iterable[_Block]:
    return (_block(part, quirks, mark) for part in message.parts)


def _block(part: Part, quirks: AnthropicQuirks, mark: str) -> _Block:
    match part:
        case Text():
            return _TextBlock(part.text)
        case ToolCall():
            return _ToolUse(_call_id(part.id), part.name, _input(part.arguments))
        case ToolResult():
            return _Result(_call_id(part.call_id), part.text or None, part.failed or None)
        case Reasoning():
            return _thought(part.text, part.signature.removeprefix(mark))
        case Image() if is_shown(part, quirks):
            return _ImageBlock(_source(part.source))
        case File() if is_shown(part, quirks):
            return _DocumentBlock(_document(part), part.name)
        case Image() | File():
            return _TextBlock(note_on(part))


def _thought(text: str, signature: str) -> _Block:
    if signature.startswith(REDACTED):
        return _RedactedBlock(signature.removeprefix(REDACTED))
    return _ThinkingBlock(text, signature)


def _input(arguments: str) -> Raw:
    """Return the arguments as the model wrote them, or what is no JSON object in one that shows it."""
    try:
        msgspec.json.decode(arguments, type=dict[str, Raw])
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return Raw(_ENCODE({"unreadable": arguments} if arguments else {}))
    return Raw(arguments.encode())


def _source(source: str) -> dict[str, str]:
    if not source.startswith("data:"):
        return {"type": "url", "url": source}
    media_type, data = split_data_uri(source)
    return {"type": "base64", "media_type": media_type, "data": data}


def _document(part: File) -> dict[str, str]:
    source = _source(part.source)
    if part.media_type == "text/plain" and source["type"] == "base64":
        text = base64.b64decode(source["data"]).decode(errors="replace")
        return {"type": "text", "media_type": "text/plain", "data": text}
    return source


def _call_id(call_id: str) -> str:
    return wire_call_id(call_id, _CALL_ID, 32)

"""Translate requests into Messages bodies."""

import base64
import re
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Raw, Struct, structs

from talaria.contracts.provider import ModelRequest
from talaria.core.messages import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult
from talaria.providers.base.outgoing import (
    OPENING,
    ConversationEncoder,
    describe_attachment,
    reasoning_mark,
    split_data_uri,
    wire_call_id,
)
from talaria.providers.settings import AnthropicQuirks, AnthropicSettings

PROTOCOL = "anthropic"
REDACTED = "redacted:"
BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 24_576}
LEAST_BUDGET = 1024
_ENCODE = msgspec.json.Encoder().encode
_EPHEMERAL = {"type": "ephemeral"}
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def encode(request: ModelRequest, settings: AnthropicSettings) -> bytes:
    """Return the body of a single request."""
    encoder = AnthropicEncoder(settings)
    encoder.take(request.messages, request.messages)
    return encoder.encode(request)


def is_shown(part: Image | File, quirks: AnthropicQuirks) -> bool:
    """Return whether the server can view an attachment; otherwise it is described in words."""
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
    messages: list[_Message | Raw]


class AnthropicEncoder(ConversationEncoder[_Message]):
    """Encodes Messages requests; messages come last, so that a longer conversation changes only the end.

    Cache marks move: they are not part of what is cached, so bytes of two requests are compared without them. One
    follows tools and system prompt; one is at the end of the conversation and one where the last request ended, because
    the server looks back only 20 blocks. A request for structured output is sent once: no mark would pay.
    """

    LOOSE = 4  # as roles alternate, the user's last two messages are among them

    def __init__(self, settings: AnthropicSettings) -> None:
        super().__init__(reasoning_mark(PROTOCOL, settings.name))
        self._settings = settings

    def encode(self, request: ModelRequest) -> bytes:
        """Return the body of a request whose messages were added."""
        quirks = self._settings.quirks
        settled, loose = self.encode_messages()
        max_tokens = request.max_output_tokens or quirks.default_max_tokens
        thinking = _build_thinking(request, quirks, loose, max_tokens)
        system = [_TextBlock(request.system)] if request.system else None
        tools = [_Tool(tool.name, tool.description, tool.parameters) for tool in request.tools] or None
        if quirks.cache_marks and request.output_schema is None:
            for fixed in (system or tools or [])[-1:]:
                fixed.cache_control = _EPHEMERAL
            loose = _mark_ends(loose)
        return _ENCODE(
            _Body(
                model=request.model,
                max_tokens=max_tokens,
                stream=request.stream or None,
                temperature=request.temperature if thinking is None else None,
                thinking=thinking,
                output_config=_build_output_config(request, quirks),
                tools=tools,
                system=system,
                messages=[*settled, *loose],
            )
        )

    def _encode_message(self, message: Message) -> tuple[_Message, ...]:
        role = "assistant" if message.role == "assistant" else "user"
        return (_Message(role, list(_encode_parts(message, self._settings.quirks, self._mark))),)

    def _join(self, last: _Message | None, new: _Message) -> Sequence[_Message]:
        """Make roles alternate, starting with the user."""
        if last is None:
            return (_Message("user", [_TextBlock(OPENING)]), new) if new.role == "assistant" else (new,)
        if last.role == new.role:
            return (_Message(new.role, [*last.content, *new.content]),)
        return (last, new)


def _mark_ends(messages: Sequence[_Message]) -> list[_Message]:
    """Return messages with marks on the last two that are not the model's, the ends of two requests."""
    ends = [index for index, message in enumerate(messages) if message.role == "user"][-2:]
    return [_mark_cache_breakpoint(message) if index in ends else message for index, message in enumerate(messages)]


def _mark_cache_breakpoint(message: _Message) -> _Message:
    *front, last = message.content
    if isinstance(last, _ThinkingBlock | _RedactedBlock):
        return message
    return _Message(message.role, [*front, structs.replace(last, cache_control=_EPHEMERAL)])


def _has_budget(model: str, quirks: AnthropicQuirks) -> bool:
    return model.startswith(quirks.budget_models)


def _build_thinking(
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
    """Return whether the last tool calls came with reasoning, as the server requires."""
    answered = [message for message in messages[-2:] if isinstance(message.content[-1], _ToolUse)]
    return all(isinstance(message.content[0], _ThinkingBlock | _RedactedBlock) for message in answered)


def _build_output_config(request: ModelRequest, quirks: AnthropicQuirks) -> _OutputConfig | None:
    is_graded = request.effort not in {"", "none"} and not _has_budget(request.model, quirks)
    effort = request.effort.replace("minimal", "low") if is_graded else None
    schema = request.output_schema
    if effort is None and schema is None:
        return None
    return _OutputConfig(effort, None if schema is None else _OutputFormat(schema))


def _encode_parts(message: Message, quirks: AnthropicQuirks, mark: str) -> Iterable[_Block]:
    return (_encode_part(part, quirks, mark) for part in message.parts)


def _encode_part(part: Part, quirks: AnthropicQuirks, mark: str) -> _Block:
    match part:
        case Text():
            return _TextBlock(part.text)
        case ToolCall():
            return _ToolUse(_limit_call_id(part.id), part.name, _encode_arguments(part.arguments))
        case ToolResult():
            return _Result(_limit_call_id(part.call_id), part.text or None, part.failed or None)
        case Reasoning():
            return _encode_reasoning(part.text, part.signature.removeprefix(mark))
        case Image() if is_shown(part, quirks):
            return _ImageBlock(_encode_source(part.source))
        case File() if is_shown(part, quirks):
            return _DocumentBlock(_encode_document(part), part.name)
        case Image() | File():
            return _TextBlock(describe_attachment(part))


def _encode_reasoning(text: str, signature: str) -> _Block:
    if signature.startswith(REDACTED):
        return _RedactedBlock(signature.removeprefix(REDACTED))
    return _ThinkingBlock(text, signature)


def _encode_arguments(arguments: str) -> Raw:
    """Return the arguments as the model wrote them, or an object that contains invalid ones."""
    try:
        msgspec.json.decode(arguments, type=dict[str, Raw])
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return Raw(_ENCODE({"unreadable": arguments} if arguments else {}))
    return Raw(arguments.encode())


def _encode_source(source: str) -> dict[str, str]:
    if not source.startswith("data:"):
        return {"type": "url", "url": source}
    media_type, data = split_data_uri(source)
    return {"type": "base64", "media_type": media_type, "data": data}


def _encode_document(part: File) -> dict[str, str]:
    source = _encode_source(part.source)
    if part.media_type == "text/plain" and source["type"] == "base64":
        text = base64.b64decode(source["data"]).decode(errors="replace")
        return {"type": "text", "media_type": "text/plain", "data": text}
    return source


def _limit_call_id(call_id: str) -> str:
    return wire_call_id(call_id, _CALL_ID, 32)

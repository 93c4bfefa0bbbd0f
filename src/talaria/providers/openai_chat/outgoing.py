"""Translate requests into Chat Completions bodies."""

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec
from msgspec import Raw, Struct, structs

from talaria.contracts.provider import ModelRequest
from talaria.core.messages import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult
from talaria.providers.base.outgoing import (
    NO_ANSWER,
    OPENING,
    ConversationEncoder,
    describe_attachment,
    reasoning_mark,
    wire_call_id,
)
from talaria.providers.settings import ChatQuirks, OpenAIChatSettings

PROTOCOL = "chat"
FOR_CALL = "call:"
_ENCODE = msgspec.json.Encoder().encode
_ANY_ID = re.compile(r"[^\s]{1,64}")
_SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")


def encode(request: ModelRequest, settings: OpenAIChatSettings) -> bytes:
    """Return the body of a single request."""
    encoder = ChatEncoder(settings)
    encoder.take(request.messages, request.messages)
    return encoder.encode(request)


def is_shown(part: Image | File, quirks: ChatQuirks) -> bool:
    """Return whether the server can view an attachment; otherwise it is described in words."""
    if isinstance(part, Image):
        return quirks.images
    return quirks.documents and part.media_type == "application/pdf"


class _Function(Struct):
    name: str
    description: str
    parameters: Raw


class _Tool(Struct):
    function: _Function
    type: str = "function"


class _Called(Struct):
    name: str
    arguments: str


class _ToolCall(Struct, omit_defaults=True):
    id: str
    type: str
    function: _Called
    extra_content: Raw | None = None


class _TextPart(Struct, tag="text", tag_field="type"):
    text: str


class _ImagePart(Struct, tag="image_url", tag_field="type"):
    image_url: dict[str, str]


class _FilePart(Struct, tag="file", tag_field="type"):
    file: dict[str, str]


_ContentPart = _TextPart | _ImagePart | _FilePart


class _Message(Struct, omit_defaults=True):
    role: str
    content: str | list[_ContentPart] | None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None
    tool_call_id: str | None = None


class _Body(Struct, kw_only=True, omit_defaults=True):
    model: str
    stream: bool | None = None
    stream_options: dict[str, bool] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    reasoning: dict[str, str] | None = None
    thinking: dict[str, str] | None = None
    response_format: dict[str, str | dict[str, str | Raw]] | None = None
    tools: list[_Tool] | None = None
    messages: list[_Message | Raw]


class ChatEncoder(ConversationEncoder[_Message]):
    """Encodes Chat Completions requests; messages come last, so that a longer conversation changes only the end."""

    def __init__(self, settings: OpenAIChatSettings) -> None:
        super().__init__(reasoning_mark(PROTOCOL, settings.name))
        self._settings = settings

    def encode(self, request: ModelRequest) -> bytes:
        """Return the body of a request whose messages were added."""
        quirks = self._settings.quirks
        in_tokens = {quirks.max_tokens_field: request.max_output_tokens}
        settled, loose = self.encode_messages()
        system = [_Message("system", request.system)] if request.system else []
        return _ENCODE(
            _Body(
                model=request.model,
                stream=request.stream or None,
                stream_options={"include_usage": True} if request.stream and quirks.usage_on_request else None,
                max_tokens=in_tokens.get("max_tokens"),
                max_completion_tokens=in_tokens.get("max_completion_tokens"),
                temperature=request.temperature,
                reasoning_effort=_choose_effort(request, quirks, "reasoning_effort"),
                reasoning={"effort": effort} if (effort := _choose_effort(request, quirks, "reasoning")) else None,
                thinking={"type": "disabled"} if request.effort == "none" and quirks.effort == "thinking" else None,
                response_format=_format(request.output_schema, quirks),
                tools=[_Tool(_Function(tool.name, tool.description, tool.parameters)) for tool in request.tools]
                or None,
                messages=[*system, *settled, *loose],
            )
        )

    def _encode_message(self, message: Message) -> Iterator[_Message]:
        yield from _encode_by_role(message, self._settings)

    def _join(self, last: _Message | None, new: _Message) -> Sequence[_Message]:
        """Separate or join consecutive messages of one role: strict templates require alternating roles."""
        if self._settings.quirks.alternating_roles:
            return _alternate_roles(last, new)
        if last is not None and last.role == new.role == "user":
            return (
                last,
                _Message("assistant", NO_ANSWER),
                new,
            )  # for example after a failed turn; the user's text stays
        return (new,) if last is None else (last, new)


def _alternate_roles(last: _Message | None, new: _Message) -> Sequence[_Message]:
    """Return two messages, joined if they have the same role, and starting with the user."""
    if last is None:
        return (_Message("user", OPENING), new) if new.role == "assistant" else (new,)
    if _is_continued(last, new):
        return (structs.replace(last, content=_join_content(last.content, new.content)),)
    if new.role == "assistant" and last.role == "system":
        return (last, _Message("user", OPENING), new)
    return (last, new)


def _choose_effort(request: ModelRequest, quirks: ChatQuirks, field: str) -> str | None:
    if field == "reasoning_effort" and quirks.effort == "thinking" and request.effort != "none":
        return request.effort or None
    return (request.effort or None) if quirks.effort == field else None


def _format(schema: Raw | None, quirks: ChatQuirks) -> dict[str, str | dict[str, str | Raw]] | None:
    if schema is None or quirks.schema == "unsupported":
        return None
    if quirks.schema == "json_object":
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}


def _encode_by_role(message: Message, settings: OpenAIChatSettings) -> Iterator[_Message]:
    if message.role == "assistant":
        yield _encode_reply(message, settings)
    elif message.role == "tool":
        yield from (
            _Message("tool", part.text, tool_call_id=_limit_call_id(part.call_id, settings.quirks))
            for part in message.parts
            if isinstance(part, ToolResult)
        )
        attached = [part for part in message.parts if not isinstance(part, ToolResult)]
        if attached:
            yield _Message("user", _encode_content(attached, settings.quirks))
    else:
        yield _Message(message.role, _encode_content(message.parts, settings.quirks))


def _encode_reply(message: Message, settings: OpenAIChatSettings) -> _Message:
    text = "\n\n".join(part.text for part in message.parts if isinstance(part, Text))
    has_calls = any(isinstance(part, ToolCall) for part in message.parts)
    wire = _Message(
        "assistant", text or None, tool_calls=list(_encode_calls(message.parts, settings)) if has_calls else None
    )
    if settings.quirks.reasoning_back:
        thoughts = (part.text for part in message.parts if isinstance(part, Reasoning) and part.text)
        setattr(wire, settings.quirks.reasoning_back, "\n".join(thoughts) or None)
    return wire


def _encode_calls(parts: Iterable[Part], settings: OpenAIChatSettings) -> Iterator[_ToolCall]:
    """Yield the calls, each with the provider's extra data, which came as a signature right before it."""
    for_call = reasoning_mark(PROTOCOL, settings.name) + FOR_CALL
    extra: Raw | None = None
    for part in parts:
        if isinstance(part, Reasoning) and part.signature.startswith(for_call):
            extra = Raw(part.signature.removeprefix(for_call).encode())
        elif isinstance(part, ToolCall):
            arguments = _Called(part.name, part.arguments or "{}")
            yield _ToolCall(_limit_call_id(part.id, settings.quirks), "function", arguments, extra)
            extra = None


def _encode_content(parts: Iterable[Part], quirks: ChatQuirks) -> str | list[_ContentPart]:
    wire = [_encode_part(part, quirks) for part in parts]
    texts = [part.text for part in wire if isinstance(part, _TextPart)]
    return "\n\n".join(texts) if len(texts) == len(wire) else wire


def _encode_part(part: Part, quirks: ChatQuirks) -> _ContentPart:
    match part:
        case Image() if is_shown(part, quirks):
            return _ImagePart({"url": part.source})
        case File() if is_shown(part, quirks) and part.source.startswith("data:"):
            return _FilePart({"filename": part.name, "file_data": part.source})
        case Image() | File():
            return _TextPart(describe_attachment(part))
        case Text():
            return _TextPart(part.text)
        case _:
            raise AssertionError("after repair only assistant and tool messages have such a part")


def _is_continued(last: _Message, message: _Message) -> bool:
    calls = last.tool_calls or message.tool_calls
    return last.role == message.role and (last.role == "user" or (last.role == "assistant" and not calls))


_Content = str | list[_ContentPart] | None


def _join_content(first: _Content, second: _Content) -> _Content:
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    return [part for one in (first, second) for part in ([_TextPart(one)] if isinstance(one, str) else one or [])]


def _limit_call_id(call_id: str, quirks: ChatQuirks) -> str:
    return wire_call_id(call_id, _SHORT_ID, 9) if quirks.short_call_ids else wire_call_id(call_id, _ANY_ID, 32)

"""Translate requests into Responses bodies."""

import re
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Raw, Struct

from talaria.contracts.provider import ModelRequest
from talaria.core.messages import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult
from talaria.providers.base.outgoing import ConversationEncoder, describe_attachment, reasoning_mark, wire_call_id
from talaria.providers.settings import OpenAIResponsesSettings, ResponsesQuirks

PROTOCOL = "responses"
_ENCODE = msgspec.json.Encoder().encode
_CALL_ID = re.compile(r"[^\s]{1,64}")


def encode(request: ModelRequest, settings: OpenAIResponsesSettings) -> bytes:
    """Return the body of a single request."""
    encoder = ResponsesEncoder(settings)
    encoder.take(request.messages, request.messages)
    return encoder.encode(request)


def is_shown(part: Image | File, quirks: ResponsesQuirks) -> bool:
    """Return whether the server can view an attachment; otherwise it is described in words."""
    if isinstance(part, Image):
        return quirks.images
    return quirks.documents and part.media_type == "application/pdf"


class _Tool(Struct, tag="function", tag_field="type"):
    name: str
    description: str
    parameters: Raw
    strict: bool = False


class _Format(Struct, tag="json_schema", tag_field="type"):
    schema: Raw | None
    name: str = "reply"
    strict: bool = False


class _InputText(Struct, tag="input_text", tag_field="type"):
    text: str


class _InputImage(Struct, tag="input_image", tag_field="type"):
    image_url: str
    detail: str = "auto"


class _InputFile(Struct, tag="input_file", tag_field="type", omit_defaults=True):
    filename: str | None = None
    file_data: str | None = None
    file_url: str | None = None


_Content = _InputText | _InputImage | _InputFile


class _Spoken(Struct, tag="message", tag_field="type"):
    role: str
    content: str | list[_Content]


class _Thought(Struct, tag="reasoning", tag_field="type"):
    id: str
    summary: list[dict[str, str]]
    encrypted_content: str


class _Called(Struct, tag="function_call", tag_field="type"):
    call_id: str
    name: str
    arguments: str


class _Output(Struct, tag="function_call_output", tag_field="type"):
    call_id: str
    output: str


_Item = _Spoken | _Thought | _Called | _Output


class _Body(Struct, kw_only=True, omit_defaults=True):
    model: str
    stream: bool | None = None
    store: bool | None = None
    include: list[str] | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    reasoning: dict[str, str] | None = None
    text: dict[str, _Format] | None = None
    instructions: str | None = None
    tools: list[_Tool] | None = None
    input: list[_Item | Raw]


class ResponsesEncoder(ConversationEncoder[_Item]):
    """Encodes Responses requests; the input comes last, so that a longer conversation changes only the end.

    Nothing is stored on the server: reasoning comes back encrypted, and is sent along with the next request.
    """

    def __init__(self, settings: OpenAIResponsesSettings) -> None:
        super().__init__(reasoning_mark(PROTOCOL, settings.name))
        self._settings = settings

    def encode(self, request: ModelRequest) -> bytes:
        """Return the body of a request whose messages were added."""
        thinks = request.effort not in {"", "none"}
        settled, loose = self.encode_messages()
        quirks = self._settings.quirks
        return _ENCODE(
            _Body(
                model=request.model,
                stream=request.stream or quirks.always_streamed or None,
                store=False,
                include=["reasoning.encrypted_content"] if thinks else None,
                max_output_tokens=request.max_output_tokens if quirks.limits else None,
                temperature=request.temperature if quirks.limits else None,
                reasoning=_build_reasoning(request.effort, quirks),
                text={"format": _Format(request.output_schema)} if request.output_schema is not None else None,
                instructions=request.system or quirks.instructions or None,
                tools=[_Tool(tool.name, tool.description, tool.parameters) for tool in request.tools] or None,
                input=[*settled, *loose],
            )
        )

    def _encode_message(self, message: Message) -> Iterator[_Item]:
        return _encode_items(message, self._settings.quirks, self._mark)


def _build_reasoning(effort: str, quirks: ResponsesQuirks) -> dict[str, str] | None:
    if not effort:
        return None
    has_summary = quirks.summary == "auto" and effort != "none"
    return {"effort": effort, "summary": "auto"} if has_summary else {"effort": effort}


def _encode_items(message: Message, quirks: ResponsesQuirks, mark: str) -> Iterator[_Item]:
    if message.role == "assistant":
        yield from (_encode_reply_part(part, mark) for part in message.parts)
        return
    yield from (
        _Output(_limit_call_id(part.call_id), part.text) for part in message.parts if isinstance(part, ToolResult)
    )
    spoken = [part for part in message.parts if not isinstance(part, ToolResult)]
    if spoken:
        yield _Spoken("system" if message.role == "system" else "user", _encode_content(spoken, quirks))


def _encode_reply_part(part: Part, mark: str) -> _Item:
    match part:
        case ToolCall():
            return _Called(_limit_call_id(part.id), part.name, part.arguments or "{}")
        case Reasoning():
            item_id, _, sealed = part.signature.removeprefix(mark).partition(":")
            return _Thought(item_id, [{"type": "summary_text", "text": part.text}] if part.text else [], sealed)
        case Text():
            return _Spoken("assistant", part.text)
        case Image() | File():
            return _Spoken("assistant", describe_attachment(part))
        case ToolResult():
            raise AssertionError("after repair an assistant message has no tool result")


def _encode_content(parts: Iterable[Part], quirks: ResponsesQuirks) -> str | list[_Content]:
    wire = [_encode_part(part, quirks) for part in parts]
    texts = [part.text for part in wire if isinstance(part, _InputText)]
    return "\n\n".join(texts) if len(texts) == len(wire) else wire


def _encode_part(part: Part, quirks: ResponsesQuirks) -> _Content:
    match part:
        case Image() if is_shown(part, quirks):
            return _InputImage(part.source)
        case File() if is_shown(part, quirks) and part.source.startswith("data:"):
            return _InputFile(filename=part.name, file_data=part.source)
        case File() if is_shown(part, quirks):
            return _InputFile(file_url=part.source)
        case Image() | File():
            return _InputText(describe_attachment(part))
        case Text():
            return _InputText(part.text)
        case _:
            raise AssertionError("after repair only assistant and tool messages have such a part")


def _limit_call_id(call_id: str) -> str:
    return wire_call_id(call_id, _CALL_ID, 32)

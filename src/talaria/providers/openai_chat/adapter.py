"""The Chat Completions adapter for one account, and the parser of its replies.

Tokens read from or written to a cache are part of ``input_tokens``, reasoning tokens part of ``output_tokens``.
"""

from collections.abc import Sequence
from datetime import datetime
from functools import partial

import msgspec
from msgspec import Raw, Struct

from talaria.contracts.clock import Clock
from talaria.contracts.provider import ModelEvent, ModelReasoning, ModelReply, ModelText, StopReason
from talaria.core.errors import MalformedReply
from talaria.core.ids import new_id
from talaria.core.messages import Message, Part, Reasoning, Text, ToolCall, Usage
from talaria.http_client.client import HttpPool
from talaria.providers.base.errors import Complaint, make_stream_error
from talaria.providers.base.http_provider import ArgumentsMeter, Endpoint, ProviderOverHttp, WireFormat, decode_json
from talaria.providers.base.outgoing import reasoning_mark
from talaria.providers.openai_chat.outgoing import FOR_CALL, PROTOCOL, ChatEncoder, is_shown
from talaria.providers.settings import OpenAIChatSettings

STOPS: dict[str, StopReason] = {
    "stop": "end",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "content_filter": "refused",
}


class OpenAIChat(ProviderOverHttp):
    """The provider for OpenAI's Chat Completions protocol; its creator owns the pool."""

    def __init__(self, settings: OpenAIChatSettings, http: HttpPool, clock: Clock | None = None) -> None:
        base = settings.base_url.rstrip("/")
        key = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        headers = {**key, **settings.headers}
        calls, models = f"{base}/chat/completions", settings.models_url or f"{base}/models"
        endpoint = Endpoint(
            settings.name, calls, models, headers, settings.timeouts, settings.source, settings.authorizer
        )
        wire = WireFormat(partial(is_shown, quirks=settings.quirks), partial(ChatEncoder, settings), ReplyUnderway)
        super().__init__(endpoint, wire, http, clock)


class ReplyUnderway:
    """A reply that grows chunk by chunk."""

    def __init__(self, provider: str, model: str) -> None:
        self._provider = provider
        self._model = model
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[_CallUnderway] = []
        self._arguments: ArgumentsMeter | None = None
        self._usage = _Usage()
        self._stop: StopReason | None = None
        self.done = False

    def take(self, data: bytes) -> Sequence[ModelEvent]:
        """Process one chunk and return what is new in it."""
        if data == b"[DONE]":
            self.done = True
            return ()
        chunk = decode_json(_DECODER, data, self._provider)
        if chunk.error is not None:
            complaint = Complaint(message=chunk.error) if isinstance(chunk.error, str) else chunk.error
            raise make_stream_error(self._provider, complaint)
        if chunk.usage is not None:
            self._usage = chunk.usage
        return self._take_choice(chunk.choices[0]) if chunk.choices else ()

    def take_whole(self, body: bytes) -> Sequence[ModelEvent]:
        """Process a reply that came in one piece, like one large chunk."""
        return self.take(body)

    def reply(self, at: datetime) -> ModelReply:
        """Return the complete reply; one without a stop reason was cut off."""
        if self._stop is None and not self.done:
            raise MalformedReply(f"{self._provider}: the reply ended early")
        message = Message(role="assistant", parts=tuple(self._build_parts()), at=at, model=self._model)
        stop = self._stop or "end"
        return ModelReply(message, "tool_calls" if self._calls and stop == "end" else stop, self._usage.to_usage())

    def _take_choice(self, choice: "_Choice") -> list[ModelEvent]:
        events: list[ModelEvent] = []
        delta = choice.delta or choice.message
        if delta is not None:
            thought, text = delta.split_reasoning()
            if thought:
                self._thoughts.append(thought)
                events.append(ModelReasoning(thought))
            if text:
                self._text.append(text)
                events.append(ModelText(text))
            if delta.refusal:
                self._stop = "refused"
            for call in delta.tool_calls or ():
                self._take_call(call)
        if choice.finish_reason and self._stop is None:
            self._stop = STOPS.get(choice.finish_reason, "end")
        return events

    def _take_call(self, delta: "_CallDelta") -> None:
        """Add to a call; some servers number all parallel calls 0 and distinguish them by id."""
        call = next((one for one in reversed(self._calls) if delta.index is None or one.index == delta.index), None)
        if call is None or (delta.id and call.id and delta.id != call.id):
            call = _CallUnderway(delta.index)
            self._calls.append(call)
        call.add(delta)
        self._arguments = self._arguments or ArgumentsMeter(self._provider)
        self._arguments.count(call.arguments[-1] if delta.function else "")

    def _build_parts(self) -> list[Part]:
        parts: list[Part] = []
        mark = reasoning_mark(PROTOCOL, self._provider) if self._thoughts or self._calls else ""
        if self._thoughts:
            parts.append(Reasoning("".join(self._thoughts), mark))
        if self._text:
            parts.append(Text("".join(self._text)))
        for call in self._calls:
            if call.extra:
                parts.append(Reasoning("", mark + FOR_CALL + call.extra))
            parts.append(ToolCall(call.id or f"call_{new_id()}", call.name, "".join(call.arguments)))
        return parts


class _CallUnderway:
    def __init__(self, index: int | None) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments: list[str] = []
        self.extra = ""

    def add(self, delta: "_CallDelta") -> None:
        self.id = self.id or delta.id or ""
        self.extra = bytes(delta.extra_content).decode() or self.extra
        if delta.function is not None:
            self.name = self.name or delta.function.name or ""
            self.arguments.append(delta.function.arguments or "")


class _FunctionDelta(Struct):
    name: str | None = None
    arguments: str | None = None


class _CallDelta(Struct):
    index: int | None = None
    id: str | None = None
    function: _FunctionDelta | None = None
    extra_content: Raw = Raw(b"")


class _Piece(Struct):
    """A piece of content in the form of Mistral's reasoning models."""

    type: str = "text"
    text: str = ""
    thinking: "list[_Piece]" = []


class _Delta(Struct):
    content: str | list[_Piece] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallDelta] | None = None

    def split_reasoning(self) -> tuple[str, str]:
        """Return the reasoning and the text."""
        reasoning, content = self.reasoning_content or self.reasoning or "", self.content or self.refusal or ""
        if isinstance(content, str):
            return reasoning, content
        reasoning += "".join(inner.text for piece in content for inner in piece.thinking)
        return reasoning, "".join(piece.text for piece in content)


class _Choice(Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _InputDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    prompt_cache_hit_tokens: int | None = None

    def to_usage(self) -> Usage:
        """Return our usage."""
        details = self.prompt_tokens_details or _InputDetails()
        return Usage(
            calls=1,
            input_tokens=self.prompt_tokens or 0,
            output_tokens=self.completion_tokens or 0,
            cache_read_tokens=details.cached_tokens or self.prompt_cache_hit_tokens or 0,
            cache_write_tokens=details.cache_write_tokens or 0,
            reasoning_tokens=(self.completion_tokens_details or _OutputDetails()).reasoning_tokens or 0,
        )


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: Complaint | str | None = None


_DECODER = msgspec.json.Decoder(_Chunk)

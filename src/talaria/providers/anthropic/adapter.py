"""The Messages adapter for one account, and the parser of its replies.

Tokens read from or written to a cache are part of ``input_tokens``, reasoning tokens part of ``output_tokens``.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial

import msgspec
from msgspec import Raw, Struct

from talaria.contracts.clock import Clock
from talaria.contracts.provider import ModelEvent, ModelReasoning, ModelReply, ModelText, StopReason
from talaria.core.errors import MalformedReply
from talaria.core.messages import Message, Part, Reasoning, Text, ToolCall, Usage
from talaria.http_client.client import HttpPool
from talaria.providers.anthropic.outgoing import PROTOCOL, REDACTED, AnthropicEncoder, is_shown
from talaria.providers.base.errors import Complaint, make_stream_error
from talaria.providers.base.http_provider import ArgumentsMeter, Endpoint, ProviderOverHttp, WireFormat, decode_json
from talaria.providers.base.outgoing import reasoning_mark
from talaria.providers.settings import AnthropicSettings

VERSION = "2023-06-01"
STOPS: dict[str, StopReason] = {
    "end_turn": "end",
    "stop_sequence": "end",
    "pause_turn": "end",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}


class Anthropic(ProviderOverHttp):
    """The provider for Anthropic's Messages protocol; its creator owns the pool."""

    def __init__(self, settings: AnthropicSettings, http: HttpPool, clock: Clock | None = None) -> None:
        base = settings.base_url.rstrip("/")
        headers = {"x-api-key": settings.api_key, "anthropic-version": VERSION, **settings.headers}
        calls, models = f"{base}/messages", f"{base}/models?limit=1000"
        endpoint = Endpoint(
            settings.name, calls, models, headers, settings.timeouts, settings.source, settings.authorizer
        )
        wire = WireFormat(partial(is_shown, quirks=settings.quirks), partial(AnthropicEncoder, settings), ReplyUnderway)
        super().__init__(endpoint, wire, http, clock)


class ReplyUnderway:
    """A reply that grows event by event."""

    def __init__(self, provider: str, model: str) -> None:
        self._provider = provider
        self._model = model
        self._blocks: dict[int, _Block] = {}
        self._pieces: dict[int, list[str]] = {}
        self._arguments = ArgumentsMeter(provider)
        self._usage = _Usage()
        self._stop: str | None = None
        self.done = False

    def take(self, data: bytes) -> Sequence[ModelEvent]:
        """Process one event and return what is new in it."""
        event = decode_json(_DECODE, data, self._provider)
        if event.type == "content_block_delta" and event.delta is not None:
            return self._take_delta(event.index, event.delta)
        if event.type == "content_block_start" and event.content_block is not None:
            self._blocks[event.index] = event.content_block
            self._pieces[event.index] = []
        elif event.type == "message_start" and event.message is not None:
            self._usage = event.message.usage
        elif event.type == "message_delta":
            self._stop = (event.delta.stop_reason if event.delta else None) or self._stop
            self._usage = self._usage.merge(event.usage)
        elif event.type == "error":
            raise make_stream_error(self._provider, event.error or Complaint())
        self.done = self.done or event.type == "message_stop"
        return ()

    def take_whole(self, body: bytes) -> Sequence[ModelEvent]:
        """Process a reply that came in one piece."""
        message = decode_json(_DECODE_WHOLE, body, self._provider)
        self._blocks = dict(enumerate(message.content))
        self._usage, self._stop = message.usage, message.stop_reason
        self.done = message.stop_reason is not None
        return [event for block in message.content for event in block.to_events()]

    def reply(self, at: datetime) -> ModelReply:
        """Return the complete reply; one without a stop reason was cut off."""
        if not self.done:
            raise MalformedReply(f"{self._provider}: the reply ended early")
        message = Message(role="assistant", parts=tuple(self._build_parts()), at=at, model=self._model)
        return ModelReply(message, STOPS.get(self._stop or "", "end"), self._usage.to_usage())

    def _take_delta(self, index: int, delta: "_Delta") -> Sequence[ModelEvent]:
        if index not in self._blocks:
            raise MalformedReply(f"{self._provider}: data for block {index}, which was never started")
        if delta.text:
            self._pieces[index].append(delta.text)
            return (ModelText(delta.text),)
        if delta.thinking:
            self._pieces[index].append(delta.thinking)
            return (ModelReasoning(delta.thinking),)
        if delta.partial_json:
            self._pieces[index].append(self._arguments.count(delta.partial_json))
        if delta.signature:
            self._blocks[index].signature += delta.signature
        return ()

    def _build_parts(self) -> Iterator[Part]:
        mark = reasoning_mark(PROTOCOL, self._provider)
        for index, block in self._blocks.items():
            streamed = "".join(self._pieces.get(index, ()))
            match block.type:
                case "text":
                    yield Text(block.text + streamed)
                case "thinking":
                    yield Reasoning(block.thinking + streamed, mark + block.signature if block.signature else "")
                case "redacted_thinking":
                    yield Reasoning("", mark + REDACTED + block.data)
                case "tool_use":
                    yield ToolCall(block.id, block.name, streamed or bytes(block.input).decode())


class _Block(Struct):
    type: str
    text: str = ""
    thinking: str = ""
    signature: str = ""
    data: str = ""
    id: str = ""
    name: str = ""
    input: Raw = Raw(b"{}")

    def to_events(self) -> tuple[ModelEvent, ...]:
        """Return the content of a complete block as stream events."""
        if self.text:
            return (ModelText(self.text),)
        return (ModelReasoning(self.thinking),) if self.thinking else ()


class _Delta(Struct):
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _OutputDetails(Struct):
    thinking_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None

    def merge(self, later: "_Usage | None") -> "_Usage":
        """Return it with the counts of ``later``, which are for the whole reply."""
        known = {} if later is None else {name: value for name, value in msgspec.structs.asdict(later).items() if value}
        return msgspec.structs.replace(self, **known)

    def to_usage(self) -> Usage:
        """Return our usage; in this protocol cached tokens are counted separately."""
        read, written = self.cache_read_input_tokens or 0, self.cache_creation_input_tokens or 0
        return Usage(
            calls=1,
            input_tokens=(self.input_tokens or 0) + read + written,
            output_tokens=self.output_tokens or 0,
            cache_read_tokens=read,
            cache_write_tokens=written,
            reasoning_tokens=(self.output_tokens_details or _OutputDetails()).thinking_tokens or 0,
        )


class _Whole(Struct):
    content: list[_Block]
    usage: _Usage
    stop_reason: str | None = None


class _Event(Struct):
    type: str
    index: int = 0
    message: _Whole | None = None
    content_block: _Block | None = None
    delta: _Delta | None = None
    usage: _Usage | None = None
    error: Complaint | None = None


_DECODE = msgspec.json.Decoder(_Event)
_DECODE_WHOLE = msgspec.json.Decoder(_Whole)

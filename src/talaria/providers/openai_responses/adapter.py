"""The Responses adapter for one account, and the parser of its replies.

Tokens read from or written to a cache are part of ``input_tokens``, reasoning tokens part of ``output_tokens``.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock
from talaria.contracts.provider import ModelEvent, ModelReasoning, ModelReply, ModelText, StopReason
from talaria.core.errors import MalformedReply
from talaria.core.messages import Message, Part, Reasoning, Text, ToolCall, Usage
from talaria.http_client.client import HttpPool
from talaria.providers.base.errors import Complaint, make_stream_error
from talaria.providers.base.http_provider import ArgumentsMeter, Endpoint, ProviderOverHttp, WireFormat, decode_json
from talaria.providers.base.outgoing import reasoning_mark
from talaria.providers.openai_responses.outgoing import PROTOCOL, ResponsesEncoder, is_shown
from talaria.providers.settings import OpenAIResponsesSettings

INCOMPLETE: dict[str, StopReason] = {"max_output_tokens": "length", "content_filter": "refused"}
READ = {
    "error",
    "response.completed",
    "response.failed",
    "response.incomplete",
    "response.output_item.done",
    "response.output_text.delta",
    "response.reasoning_summary_part.added",
    "response.reasoning_summary_text.delta",
    "response.reasoning_text.delta",
    "response.refusal.delta",
}


class OpenAIResponses(ProviderOverHttp):
    """The provider for OpenAI's Responses protocol; its creator owns the pool."""

    def __init__(self, settings: OpenAIResponsesSettings, http: HttpPool, clock: Clock | None = None) -> None:
        base = settings.base_url.rstrip("/")
        key = {"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        headers = {**key, **settings.headers}
        calls, models = f"{base}/responses", f"{base}/models"
        endpoint = Endpoint(
            settings.name, calls, models, headers, settings.timeouts, settings.source, settings.authorizer
        )
        wire = WireFormat(partial(is_shown, quirks=settings.quirks), partial(ResponsesEncoder, settings), ReplyUnderway)
        super().__init__(endpoint, wire, http, clock)


class ReplyUnderway:
    """A reply that grows event by event."""

    def __init__(self, provider: str, model: str) -> None:
        self._provider = provider
        self._model = model
        self._items: list[_Item] = []
        self._arguments = ArgumentsMeter(provider)
        self._response: _Response | None = None
        self.done = False

    def take(self, data: bytes) -> Sequence[ModelEvent]:
        """Process one event and return what is new in it."""
        event = self._decode_event(data)
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                return (ModelText(event.delta or ""),)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return (ModelReasoning(event.delta or ""),)
            case "response.reasoning_summary_part.added" if event.summary_index:
                return (ModelReasoning("\n\n"),)
            case "response.output_item.done" if event.item is not None:
                self._arguments.count(event.item.arguments)
                self._items.append(event.item)
            case "response.completed" | "response.incomplete" | "response.failed" if event.response is not None:
                self._end(event.response)
            case "error":
                complaint = event.error or Complaint(message=event.message, code=event.code)
                raise make_stream_error(self._provider, complaint)
        return ()

    def take_whole(self, body: bytes) -> Sequence[ModelEvent]:
        """Process a reply that came in one piece."""
        self._end(decode_json(_DECODE_WHOLE, body, self._provider))
        return [event for part in self._build_parts() for event in _to_events(part)]

    def reply(self, at: datetime) -> ModelReply:
        """Return the complete reply; one without a stop reason was cut off."""
        if self._response is None:
            raise MalformedReply(f"{self._provider}: the reply ended early")
        message = Message(role="assistant", parts=tuple(self._build_parts()), at=at, model=self._model)
        return ModelReply(
            message, self._derive_stop_reason(self._response), (self._response.usage or _Usage()).to_usage()
        )

    def _decode_event(self, data: bytes) -> "_Event":
        try:
            return decode_json(_DECODE, data, self._provider)
        except MalformedReply:
            if _is_of_no_concern(data):
                return _Event("")
            raise

    def _end(self, response: "_Response") -> None:
        if response.error is not None:
            raise make_stream_error(self._provider, response.error)
        self._response = response
        self._items = self._items or response.output
        self.done = True

    def _derive_stop_reason(self, response: "_Response") -> StopReason:
        if response.incomplete_details is not None:
            return INCOMPLETE.get(response.incomplete_details.reason or "", "length")
        if any(content.refusal for item in self._items for content in item.content or ()):
            return "refused"
        return "tool_calls" if any(item.type == "function_call" for item in self._items) else "end"

    def _build_parts(self) -> Iterator[Part]:
        for item in self._items:
            match item.type:
                case "reasoning":
                    yield self._to_reasoning(item)
                case "message":
                    yield Text("".join(content.text or content.refusal or "" for content in item.content or ()))
                case "function_call":
                    yield ToolCall(item.call_id, item.name, item.arguments)

    def _to_reasoning(self, item: "_Item") -> Reasoning:
        text = "\n\n".join(content.text for content in (item.summary or item.content or ()) if content.text)
        mark = reasoning_mark(PROTOCOL, self._provider)
        return Reasoning(text, f"{mark}{item.id}:{item.encrypted_content}" if item.encrypted_content else "")


def _to_events(part: Part) -> tuple[ModelEvent, ...]:
    match part:
        case Text():
            return (ModelText(part.text),)
        case Reasoning() if part.text:
            return (ModelReasoning(part.text),)
        case _:
            return ()


def _is_of_no_concern(data: bytes) -> bool:
    """Return whether this event is ignored: its fields may have any type."""
    try:
        kind = msgspec.json.decode(data, type=_Kind).type
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return False
    return kind not in READ


class _Kind(Struct):
    type: str


class _Content(Struct):
    text: str | None = None
    refusal: str | None = None


class _Item(Struct):
    type: str = ""
    id: str | None = None
    content: list[_Content] | None = None
    summary: list[_Content] | None = None
    encrypted_content: str | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""


class _InputDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None

    def to_usage(self) -> Usage:
        """Return our usage."""
        details = self.input_tokens_details or _InputDetails()
        return Usage(
            calls=1,
            input_tokens=self.input_tokens or 0,
            output_tokens=self.output_tokens or 0,
            cache_read_tokens=details.cached_tokens or 0,
            cache_write_tokens=details.cache_write_tokens or 0,
            reasoning_tokens=(self.output_tokens_details or _OutputDetails()).reasoning_tokens or 0,
        )


class _Incomplete(Struct):
    reason: str | None = None


class _Response(Struct):
    output: list[_Item] = []
    usage: _Usage | None = None
    error: Complaint | None = None
    incomplete_details: _Incomplete | None = None


class _Event(Struct):
    type: str
    delta: str | None = None
    summary_index: int | None = None
    item: _Item | None = None
    response: _Response | None = None
    error: Complaint | None = None
    code: str | None = None
    message: str | None = None


_DECODE = msgspec.json.Decoder(_Event)
_DECODE_WHOLE = msgspec.json.Decoder(_Response)

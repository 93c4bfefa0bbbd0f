"""Shared implementation of providers over HTTP: send a request, stream the reply, raise our errors."""

import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from itertools import chain
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.provider import ListedModel, ModelEvent, ModelReasoning, ModelReply, ModelRequest, ModelText
from talaria.core.errors import MalformedReply, ModelSource, ProviderError, ReplyTooLong
from talaria.core.messages import File, Image, Message, Text, Usage
from talaria.http_client.client import Answer, HttpPool
from talaria.http_client.connection import Timeouts
from talaria.providers.base.errors import make_response_error
from talaria.providers.base.outgoing import ConversationEncoder
from talaria.providers.settings import RequestAuthorizer

MAX_TEXT = 1_000_000  # characters of text and reasoning
MAX_ARGUMENTS = 1_000_000  # characters of the arguments of all tool calls
MAX_STREAM = 512 * 1024 * 1024  # bytes of all events of a stream
ENDED = f"\n\n[The reply ends here: it was longer than {MAX_TEXT:,} characters.]"
_MILLION = 1_000_000
_HIGHEST_PRICE = 1_000_000.0  # dollars: anything above, or not a number, is an error in the list
_T = TypeVar("_T")
_SURROGATES = (
    rb"(?<!\\)((?:\\\\)*)\\u(?:([dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|[dD][89a-fA-F][0-9a-fA-F]{2})"
)


class ReplyMeter:
    """Counts the size of one reply; when ``is_full``, the reply is `ended` with the text so far."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._characters = 0
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Return whether the reply has reached the limit of text."""
        return self._characters >= MAX_TEXT

    def count_bytes(self, events: Sequence[bytes]) -> None:
        """Count stream events; raises `ReplyTooLong` if there are too many."""
        self._bytes += sum(map(len, events))
        if self._bytes > MAX_STREAM:
            raise ReplyTooLong(f"the provider sent more than {MAX_STREAM // 1024**2} MB for one reply")

    def cut(self, event: ModelEvent) -> ModelEvent:
        """Count an event, and return as much of it as fits."""
        if isinstance(event, ModelReply):
            return event
        text = event.text[: MAX_TEXT - self._characters]
        self._characters += len(text)
        if isinstance(event, ModelReasoning):
            return ModelReasoning(text)
        self._text.append(text)
        return ModelText(text)

    def end_reply(self, model: str, at: datetime) -> Iterator[ModelEvent]:
        """Yield a notice, then the reply so far as if the model had reached its own limit."""
        yield ModelText(ENDED)
        message = Message(role="assistant", parts=(Text("".join([*self._text, ENDED])),), at=at, model=model)
        yield ModelReply(message, "length", Usage(calls=1, output_tokens=self._characters // 4))


class ArgumentsMeter:
    """Counts the arguments of all tool calls of one reply."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._characters = 0

    def count(self, arguments: str) -> str:
        """Return them; raises `ReplyTooLong` if there are too many."""
        self._characters += len(arguments)
        if self._characters > MAX_ARGUMENTS:
            raise ReplyTooLong(f"{self._provider}: a tool call has more than {MAX_ARGUMENTS:,} characters of arguments")
        return arguments


def decode_json(decoder: "msgspec.json.Decoder[_T]", data: bytes, provider: str) -> _T:
    """Decode a provider's JSON, or raise `MalformedReply`; invalid Unicode becomes U+FFFD."""
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        repaired = _replace_invalid(data)
        if repaired == data:
            raise MalformedReply(f"{provider}: {error}") from error
    try:
        return decoder.decode(repaired)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedReply(f"{provider}: {error}") from error


def _replace_invalid(data: bytes) -> bytes:
    readable = data.decode(errors="replace").encode()
    return re.sub(_SURROGATES, _replace_surrogate, readable)


def _replace_surrogate(match: re.Match[bytes]) -> bytes:
    """Keep a pair of surrogates, replace a single one."""
    return match[0] if match[2] else match[1] + rb"\ufffd"


JSON = "application/json"
EVENTS = "text/event-stream"


class Underway(Protocol):
    """A reply that grows as its bytes come in."""

    done: bool

    def take(self, data: bytes) -> Sequence[ModelEvent]:
        """Process the data of one stream event, and return what is new in it."""

    def take_whole(self, body: bytes) -> Sequence[ModelEvent]:
        """Process a reply that came in one piece."""

    def reply(self, at: datetime) -> ModelReply:
        """Return the complete reply, or raise `MalformedReply` if it was cut off."""


class Endpoint(Struct, frozen=True):
    """The URL of an account, and its headers."""

    name: str
    calls_url: str
    models_url: str
    headers: Mapping[str, str]
    timeouts: Timeouts
    source: ModelSource | None = None
    authorizer: RequestAuthorizer | None = None


class WireFormat(Struct, frozen=True):
    """A protocol's translation of requests and replies.

    ``shows`` says whether the server can view an attachment; otherwise it is described in words. ``make_encoder``
    returns a new encoder for the requests of a session, ``begin_reply`` an empty reply of a provider and a model.
    """

    shows: Callable[[Image | File], bool]
    make_encoder: Callable[[], ConversationEncoder[Any]]
    begin_reply: Callable[[str, str], Underway]


class ProviderOverHttp:
    """A provider over HTTP; its creator owns the pool."""

    def __init__(self, endpoint: Endpoint, wire: WireFormat, http: HttpPool, clock: Clock | None = None) -> None:
        self.name = endpoint.name
        self._endpoint = endpoint
        self._wire = wire
        self._headers = {"Content-Type": JSON, **endpoint.headers}
        self._http = http
        self._clock = clock or SystemClock()

    async def reply(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply as it grows and, last and once, as a whole."""
        body = await self._encode_request(request)
        underway, meter = self._wire.begin_reply(self.name, request.model), ReplyMeter()
        endpoint = self._endpoint
        try:
            async with self._send("POST", endpoint.calls_url, body) as answer:
                await self._check(answer)
                if answer.content_type == JSON:
                    for event in underway.take_whole(await answer.body()):
                        yield meter.cut(event)
                else:
                    while not (underway.done or meter.is_full) and (events := await answer.events()) is not None:
                        meter.count_bytes(events)
                        for event in _merge_stream_text(underway, events):
                            yield meter.cut(event)
                    if not meter.is_full:
                        await answer.drain()
            if meter.is_full:
                for event in meter.end_reply(request.model, self._clock.now()):
                    yield event
            else:
                yield underway.reply(self._clock.now())
        except ProviderError as error:
            error.attribute_to(self._make_source(request.model))
            raise

    async def models(self) -> list[ListedModel]:
        """Return the models available to this account."""
        endpoint = self._endpoint
        try:
            async with self._send("GET", endpoint.models_url, None) as answer:
                await self._check(answer)
                return read_models(await answer.body())
        except ProviderError as error:
            error.attribute_to(endpoint.source)
            raise

    def _send(self, method: str, url: str, body: bytes | None) -> AbstractAsyncContextManager[Answer]:
        endpoint = self._endpoint
        if endpoint.authorizer is None:
            return self._http.request(method, url, body, self._headers, endpoint.timeouts)
        return self._send_authorized(method, url, body, endpoint.authorizer)

    @asynccontextmanager
    async def _send_authorized(
        self, method: str, url: str, body: bytes | None, authorizer: RequestAuthorizer
    ) -> AsyncGenerator[Answer, None]:
        """Send a request, and once more if the server rejects its headers and they can be renewed."""
        timeouts = self._endpoint.timeouts
        proof = await authorizer.headers(method, url, body or b"")
        async with self._http.request(method, url, body, {**self._headers, **proof}, timeouts) as answer:
            if answer.status != 401 or not await authorizer.renew(proof):
                yield answer
                return
            await answer.drain()
        proof = await authorizer.headers(method, url, body or b"")
        async with self._http.request(method, url, body, {**self._headers, **proof}, timeouts) as answer:
            yield answer

    async def close(self) -> None:
        """Do nothing: connections belong to the pool."""

    async def _encode_request(self, request: ModelRequest) -> bytes:
        return await request.memo.recall(self, self._wire.make_encoder).encode_whole(request, self._wire.shows)

    def _make_source(self, model: str) -> ModelSource | None:
        source = self._endpoint.source
        return msgspec.structs.replace(source, model=model) if source is not None else None

    async def _check(self, answer: Answer) -> None:
        if answer.status != 200:
            raise make_response_error(self.name, answer.status, await answer.body(), answer.headers, self._clock.now())
        if answer.content_type not in {JSON, EVENTS}:
            raise MalformedReply(f"{self.name} answered with {answer.content_type}")


def _merge_stream_text(underway: Underway, received: Sequence[bytes]) -> Iterator[ModelEvent]:
    """Yield what is new in stream events that arrived together, adjacent text joined, also what precedes an error.

    A fast server sends dozens of pieces in a packet, and each costs the whole way to the listener.
    """
    kind: type[ModelText | ModelReasoning] = ModelText
    words: list[str] = []
    try:
        for event in chain.from_iterable(map(underway.take, received)):
            if not isinstance(event, kind):
                if words:
                    yield kind("".join(words))
                    words = []
                if isinstance(event, ModelReply):
                    yield event
                    continue
                kind = type(event)
            words.append(event.text)
    except ProviderError:
        if words:
            yield kind("".join(words))
        raise
    if words:
        yield kind("".join(words))


def read_models(body: bytes) -> list[ListedModel]:
    """Return the models in a list; some servers send it without an envelope."""
    try:
        found = msgspec.json.decode(body, type=_Models | list[_Model])
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedReply(f"not a list of models: {error}") from error
    listed = found if isinstance(found, list) else found.models if found.data is None else found.data
    if listed is None:
        raise MalformedReply("not a list of models: it has neither data nor models")
    return [model.to_listed_model() for model in listed if model.is_shown and (model.id or model.slug)]


class _Model(Struct):
    """A model in a list; every server has its own fields, and none of them may spoil the list."""

    id: str = ""
    slug: str = ""
    visibility: Any = "list"
    model_picker_enabled: Any = True
    context_length: Any = None
    context_window: Any = None
    max_context_length: Any = None
    max_model_len: Any = None
    capabilities: Any = None
    pricing: Any = None

    @property
    def is_shown(self) -> bool:
        """Return whether ChatGPT and Copilot show it to people."""
        return self.visibility == "list" and self.model_picker_enabled is not False

    def to_listed_model(self) -> ListedModel:
        """Return its name, size and prices."""
        input_price, output_price = self._read_price("prompt", "input"), self._read_price("completion", "output")
        name, size = self.id or self.slug, self._find_size()
        if input_price is None or output_price is None:
            return ListedModel(name, size)
        read, write = self._read_price("input_cache_read", "cached_input"), self._read_price("input_cache_write", "")
        return ListedModel(name, size, input_price, output_price, read, write)

    def _find_size(self) -> int | None:
        limits = self.capabilities.get("limits") if isinstance(self.capabilities, dict) else None
        inner = limits.get("max_context_window_tokens") if isinstance(limits, dict) else None
        sizes = (self.context_length, self.context_window, self.max_context_length, self.max_model_len, inner)
        return next((size for size in sizes if isinstance(size, int) and size > 0), None)

    def _read_price(self, per_token: str, per_million: str) -> int | None:
        """Return a price in our unit: OpenRouter lists dollars per token as text, Together dollars per million."""
        if not isinstance(self.pricing, dict):
            return None
        is_per_token = "prompt" in self.pricing
        try:
            price = float(self.pricing[per_token if is_per_token else per_million])
        except (KeyError, TypeError, ValueError):
            return None
        if not 0 <= price < _HIGHEST_PRICE:  # OpenRouter's -1 is a price that depends on the model it chooses
            return None
        return round(price * _MILLION * (_MILLION if is_per_token else 1))


class _Models(Struct):
    data: list[_Model] | None = None
    models: list[_Model] | None = None

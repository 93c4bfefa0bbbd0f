"""What every provider over HTTP does alike: send a request, read the reply as it comes, raise our own errors."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.provider import ModelEvent, ModelReasoning, ModelReply, ModelRequest, ModelText
from talaria.core.errors import MalformedReply, ModelSource, ProviderError
from talaria.core.messages import File, Image
from talaria.providers.attachments import load_attachments
from talaria.providers.conversation_encoder import ConversationEncoder
from talaria.providers.failures import failure
from talaria.providers.http import Answer, HttpPool
from talaria.providers.reply_limits import ReplyMeter
from talaria.providers.timeouts import Timeouts

JSON = "application/json"
EVENTS = "text/event-stream"


class Underway(Protocol):
    """A reply that grows as its bytes come in."""

    done: bool

    def take(self, data: bytes) -> Sequence[ModelEvent]:
        """Take the data of one event of a stream, and return what is new in it."""

    def take_whole(self, body: bytes) -> Sequence[ModelEvent]:
        """Take a reply that came in one piece."""

    def reply(self, at: datetime) -> ModelReply:
        """Return all of it, or raise `MalformedReply` if it was cut off."""


class Endpoint(Struct, frozen=True):
    """Where an account is reached, and with which headers."""

    name: str
    calls_url: str
    models_url: str
    headers: Mapping[str, str]
    timeouts: Timeouts
    source: ModelSource | None = None


class ProviderOverHttp(ABC):
    """Implements `Provider` except for its language; the pool belongs to whoever made it."""

    def __init__(self, endpoint: Endpoint, http: HttpPool, clock: Clock | None = None) -> None:
        self.name = endpoint.name
        self._endpoint = endpoint
        self._headers = {"Content-Type": JSON, **endpoint.headers}
        self._http = http
        self._clock = clock or SystemClock()

    async def reply(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply as it grows and, last and once, as a whole."""
        body = await self._encoded(request)
        underway, meter = self.begin(request), ReplyMeter()
        endpoint = self._endpoint
        try:
            async with self._http.post(endpoint.calls_url, body, self._headers, endpoint.timeouts) as answer:
                await self._check(answer)
                if answer.content_type == JSON:
                    for event in underway.take_whole(await answer.body()):
                        yield meter.cut(event)
                else:
                    while not (underway.done or meter.is_full) and (events := await answer.events()) is not None:
                        meter.count_bytes(events)
                        for event in _together(event for data in events for event in underway.take(data)):
                            yield meter.cut(event)
                    if not meter.is_full:
                        await answer.drain()
            if meter.is_full:
                for event in meter.ended(request.model, self._clock.now()):
                    yield event
            else:
                yield underway.reply(self._clock.now())
        except ProviderError as error:
            error.attribute_to(self._source(request.model))
            raise

    async def models(self) -> list[str]:
        """Return the names of the models that this account may use."""
        endpoint = self._endpoint
        try:
            async with self._http.get(endpoint.models_url, self._headers, endpoint.timeouts) as answer:
                await self._check(answer)
                return read_models(await answer.body())
        except ProviderError as error:
            error.attribute_to(endpoint.source)
            raise

    async def close(self) -> None:  # noqa: B027 - whoever has more to let go of may override it
        """Do nothing: connections belong to the pool."""

    @abstractmethod
    def shows(self, part: Image | File) -> bool:
        """Return whether this server can look at an attachment; else it is told of it in words."""

    @abstractmethod
    def encoder(self) -> ConversationEncoder[Any]:
        """Return what encodes the requests of a conversation, before it has seen any."""

    @abstractmethod
    def begin(self, request: ModelRequest) -> Underway:
        """Return the reply to a call, still empty."""

    async def _encoded(self, request: ModelRequest) -> bytes:
        encoder = request.memo.recall(self, self.encoder)
        fresh = encoder.fresh(request.messages)
        encoder.take(request.messages, await load_attachments(fresh, self.shows))
        return encoder.encode(request)

    def _source(self, model: str) -> ModelSource | None:
        source = self._endpoint.source
        return msgspec.structs.replace(source, model=model) if source is not None else None

    async def _check(self, answer: Answer) -> None:
        if answer.status != 200:
            raise failure(self.name, answer.status, await answer.body(), answer.headers, self._clock.now())
        if answer.content_type not in {JSON, EVENTS}:
            raise MalformedReply(f"{self.name} answered with {answer.content_type}")


def _together(events: Iterable[ModelEvent]) -> Iterator[ModelEvent]:
    """Yield what has come in at once with its words in one piece each; what came ahead of an error is yielded too.

    A server that is fast sends dozens of pieces in a packet, and each costs the whole way to whoever listens.
    """
    kind: type[ModelText | ModelReasoning] = ModelText
    words: list[str] = []
    try:
        for event in events:
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


def read_models(body: bytes) -> list[str]:
    """Return the names in a list of models: all three protocols write it alike."""
    try:
        return [model.id for model in msgspec.json.decode(body, type=_Models).data]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise MalformedReply(f"not a list of models: {error}") from error


class _Model(Struct):
    id: str


class _Models(Struct):
    data: list[_Model]

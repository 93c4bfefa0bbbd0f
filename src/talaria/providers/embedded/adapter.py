"""The provider for the embedded model, and the parser of its output."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.provider import ListedModel, ModelEvent, ModelReply, ModelRequest, ModelText, StopReason
from talaria.core.errors import ContextTooLong, MalformedReply, ModelUnknown, ProviderOverloaded
from talaria.core.messages import Message, Text, Usage
from talaria.providers.embedded.outgoing import encode
from talaria.providers.embedded.weights import INSTALL, MODEL, PROVIDER, check_weights, find_weights, is_installed

if TYPE_CHECKING:
    from talaria.providers.embedded.runtime import Runtime

_STOPS: dict[str, StopReason] = {"stop": "end", "length": "length"}
_TOO_LONG = "exceed_context_size_error"


class EmbeddedProvider:
    """A provider with one model in this process, loaded at the first call.

    One thread owns the model, so calls are answered one after the other. ``checked`` is a file that records that the
    weights were verified.
    """

    name = PROVIDER

    def __init__(self, checked: Path, clock: Clock | None = None) -> None:
        self._checked = checked
        self._clock = clock or SystemClock()
        self._thread = ThreadPoolExecutor(1, "embedded-model")
        self._runtime: Runtime | None = None

    async def reply(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply as it grows and, last and once, as a whole; closing the generator stops the model."""
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[bytes | None] = asyncio.Queue()
        stopped = Event()

        def queue_piece(piece: bytes) -> bool:
            if not stopped.is_set():
                loop.call_soon_threadsafe(pieces.put_nowait, piece)
            return stopped.is_set()

        work = loop.run_in_executor(self._thread, self._ask, encode(request), queue_piece, stopped)
        work.add_done_callback(lambda done: pieces.put_nowait(None) if not done.cancelled() else None)
        underway = ReplyUnderway(MODEL)
        try:
            while (piece := await pieces.get()) is not None:
                for event in underway.take(piece):
                    if request.stream:
                        yield event
            await work
        finally:
            stopped.set()
            work.cancel()
        yield underway.reply(self._clock.now())

    async def models(self) -> list[ListedModel]:
        """Return the only model, if it is installed."""
        return [ListedModel(MODEL)] if is_installed() else []

    async def close(self) -> None:
        """Unload the model, as soon as an unclosed reply is over."""
        self._thread.shutdown(wait=False)
        self._runtime = None

    def _ask(self, body: bytes, queue_piece: Callable[[bytes], bool], stopped: Event) -> None:
        if stopped.is_set():
            return
        if self._runtime is None:
            self._runtime = self._load()
        self._runtime.ask(body, queue_piece)

    def _load(self) -> "Runtime":
        weights = find_weights()
        if weights is None or not is_installed():
            raise ModelUnknown(f"The built-in model isn't installed. Run {INSTALL}.")
        check_weights(weights, self._checked)
        from talaria.providers.embedded.runtime import Runtime  # noqa: PLC0415 (loaded when the model is used: needs xllamacpp)

        return Runtime(weights)


class Delta(Struct, frozen=True):
    """More of the reply."""

    content: str | None = None


class Choice(Struct, frozen=True):
    """The only choice."""

    delta: Delta = Delta()
    finish_reason: str | None = None


class CacheCount(Struct, frozen=True):
    """Cached tokens of the prompt."""

    cached_tokens: int = 0


class Count(Struct, frozen=True):
    """The usage of the call."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: CacheCount = CacheCount()


class Trouble(Struct, frozen=True):
    """The error."""

    message: str = ""
    type: str = ""


class Piece(Struct, frozen=True):
    """A piece of output."""

    choices: tuple[Choice, ...] = ()
    usage: Count | None = None
    error: Trouble | None = None


class ReplyUnderway:
    """A reply that grows."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._words: list[str] = []
        self._stop: StopReason | None = None
        self._usage = Usage(calls=1)

    def take(self, data: bytes) -> Iterator[ModelText]:
        """Yield the text in a piece; raises the runtime's error."""
        piece = _decode(data)
        if piece.error is not None:
            raise _translate_trouble(piece.error)
        if piece.usage is not None:
            self._usage = _to_usage(piece.usage)
        for choice in piece.choices:
            if choice.finish_reason is not None:
                self._stop = _STOPS.get(choice.finish_reason, "end")
            if choice.delta.content:
                self._words.append(choice.delta.content)
                yield ModelText(choice.delta.content)

    def reply(self, at: datetime) -> ModelReply:
        """Return the complete reply."""
        if self._stop is None:
            raise MalformedReply("the embedded model ended without a reason")
        text = "".join(self._words)
        message = Message(role="assistant", parts=(Text(text),), at=at, model=self._model)
        return ModelReply(message, self._stop, self._usage)


_PIECES = msgspec.json.Decoder(Piece)


def _decode(data: bytes) -> Piece:
    try:
        return _PIECES.decode(data)
    except msgspec.DecodeError as error:
        raise MalformedReply(f"the embedded model answered {data[:80]!r}") from error


def _translate_trouble(trouble: Trouble) -> ContextTooLong | ProviderOverloaded:
    kind = ContextTooLong if trouble.type == _TOO_LONG else ProviderOverloaded
    return kind(f"the embedded model: {trouble.message}")


def _to_usage(count: Count) -> Usage:
    return Usage(
        calls=1,
        input_tokens=count.prompt_tokens,
        output_tokens=count.completion_tokens,
        cache_read_tokens=count.prompt_tokens_details.cached_tokens,
    )

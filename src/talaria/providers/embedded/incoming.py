"""Parse the output of the embedded runtime."""

from collections.abc import Iterator
from datetime import datetime

import msgspec
from msgspec import Struct

from talaria.contracts.provider import ModelReply, ModelText, StopReason
from talaria.core.errors import ContextTooLong, MalformedReply, ProviderOverloaded
from talaria.core.messages import Message, Text, Usage

_STOPS: dict[str, StopReason] = {"stop": "end", "length": "length"}
_TOO_LONG = "exceed_context_size_error"


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
            raise _failure(piece.error)
        if piece.usage is not None:
            self._usage = _usage(piece.usage)
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


def _failure(trouble: Trouble) -> ContextTooLong | ProviderOverloaded:
    kind = ContextTooLong if trouble.type == _TOO_LONG else ProviderOverloaded
    return kind(f"the embedded model: {trouble.message}")


def _usage(count: Count) -> Usage:
    return Usage(
        calls=1,
        input_tokens=count.prompt_tokens,
        output_tokens=count.completion_tokens,
        cache_read_tokens=count.prompt_tokens_details.cached_tokens,
    )

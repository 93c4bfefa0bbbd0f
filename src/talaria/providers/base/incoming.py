"""Replies of all protocols: limits against a model or server that never stops, and JSON with invalid Unicode."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from talaria.contracts.provider import ModelEvent, ModelReasoning, ModelReply, ModelText
from talaria.core.errors import MalformedReply, ReplyTooLong
from talaria.core.messages import Message, Text, Usage

MAX_TEXT = 1_000_000  # characters of text and reasoning
MAX_ARGUMENTS = 1_000_000  # characters of the arguments of all tool calls
MAX_STREAM = 512 * 1024 * 1024  # bytes of all events of a stream
ENDED = f"\n\n[The reply ends here: it was longer than {MAX_TEXT:,} characters.]"
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

    def ended(self, model: str, at: datetime) -> Iterator[ModelEvent]:
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
    return re.sub(_SURROGATES, _replacement, readable)


def _replacement(match: re.Match[bytes]) -> bytes:
    """Keep a pair of surrogates, replace a single one."""
    return match[0] if match[2] else match[1] + rb"\ufffd"

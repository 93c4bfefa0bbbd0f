"""Reduce a request to what a very small model can handle."""

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from talaria.contracts.provider import ModelRequest
from talaria.core.messages import Message, Text

CONTEXT_TOKENS = 4096
OUTPUT_TOKENS = 512
SYSTEM_TOKENS = 150
# Of those tried, the one with the most correct answers; told its limits, the model gets worse at the rest.
SYSTEM = "You are a helpful AI assistant named Talaria. You answer questions clearly, in one to three short sentences."

_HISTORY_TOKENS = 1536
_HISTORY_STEP = 512
_LAST_TOKENS = 1024
_CUT = "\n[…]\n"
_PER_MESSAGE = 8


class Spoken(Struct, frozen=True):
    """A message as the model reads it."""

    role: str
    content: str


def encode(request: ModelRequest) -> bytes:
    """Return the body of a request: a short system prompt, as much history as fits, no tools.

    A short system prompt is kept: titles and summaries are requested that way.
    """
    short = request.system and estimate(request.system) <= SYSTEM_TOKENS
    system = Spoken("system", request.system if short else SYSTEM)
    output_tokens = request.max_output_tokens or OUTPUT_TOKENS
    body: dict[str, object] = {
        "messages": [system, *cut_history(request.messages)],
        "max_tokens": min(output_tokens, CONTEXT_TOKENS // 4),
        "temperature": 0.2 if request.temperature is None else request.temperature,
        "repeat_penalty": 1.1,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,  # a progress report per batch of the prompt, each a chance to stop
    }
    if request.output_schema is not None:
        body["response_format"] = _make_response_format(request.output_schema)
    return msgspec.json.encode(body)


def cut_history(messages: Sequence[Message]) -> list[Spoken]:
    """Return the newest messages that fit, only text of people and the model.

    The front is cut in steps, not message by message: between two steps a conversation starts with the same text, so
    that the model need not read all of it again.
    """
    spoken = [one for one in map(_to_spoken, messages) if one is not None]
    if not spoken:
        return []
    *earlier, last = spoken
    sizes = [estimate(one.content) + _PER_MESSAGE for one in earlier]
    surplus = max(0, sum(sizes) - _HISTORY_TOKENS)
    to_drop = -(-surplus // _HISTORY_STEP) * _HISTORY_STEP
    first = 0
    while first < len(sizes) and to_drop > 0:
        to_drop -= sizes[first]
        first += 1
    return [*earlier[first:], Spoken(last.role, shorten(last.content, _LAST_TOKENS))]


def shorten(text: str, tokens: int) -> str:
    """Return the text, with its middle left out if it is too long."""
    while (size := estimate(text)) > tokens:
        half = len(text) * tokens // (2 * size + 2) - len(_CUT)
        text = text[: max(half, 1)] + _CUT + text[-max(half, 1) :]
        if half < 1:
            break
    return text


def estimate(text: str) -> int:
    """Return the approximate number of tokens of a text, rather too high: other scripts take one per byte."""
    size = len(text.encode("utf-8", "replace"))
    plain = 2 * len(text) - size if size < 2 * len(text) else 0
    return plain // 3 + (size - plain) + 1


def _to_spoken(message: Message) -> Spoken | None:
    text = "\n".join(part.text for part in message.parts if isinstance(part, Text)).strip()
    return Spoken(message.role, text) if text and message.role in {"user", "assistant"} else None


def _make_response_format(schema: Raw) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}

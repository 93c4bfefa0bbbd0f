"""Requests that the scripted model server received, its scripted replies, and faults of model providers."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import msgspec

from talaria.contracts.provider import StopReason
from talaria.core.ids import new_id

ProtocolName = Literal["chat", "responses", "anthropic"]
_WORDS = re.compile(r"\s*\S+(?:\s+$)?|\s+")
_CHARACTERS_PER_TOKEN = 4
_ARGUMENT_PIECE = 8


@dataclass(frozen=True)
class Received:
    """A received model call; ``headers`` are case-insensitive."""

    protocol: ProtocolName
    path: str
    headers: Mapping[str, str]
    body: bytes

    @cached_property
    def json(self) -> Any:
        """The body, decoded."""
        return msgspec.json.decode(self.body)

    @property
    def is_title_request(self) -> bool:
        """Return whether Talaria asks for a title of a session, which it does in parallel with the next turn."""
        return b"title of at most six words" in self.body

    @cached_property
    def question(self) -> str:
        """The text of the last message of a person; empty if there is none."""
        body = self.json
        turns = body.get("messages", body.get("input", ()))
        if isinstance(turns, str):
            return turns
        user_messages = [_join_content(turn.get("content")) for turn in turns if turn.get("role") == "user"]
        return next((texts for texts in reversed(user_messages) if texts), "")


class StreamOptions(msgspec.Struct, frozen=True):
    """Options of a Chat Completions stream."""

    include_usage: bool = False


class RequestOptions(msgspec.Struct, frozen=True):
    """The part of a request that decides the form of its answer."""

    model: str
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    include: list[str] | None = None

    @property
    def wants_usage(self) -> bool:
        """Return whether a Chat Completions stream ends with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request with the id under which it is answered."""

    id: str
    options: RequestOptions
    prompt_bytes: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """The usage of a call; ``input`` counts only tokens neither read from nor written to a cache."""

    input: int
    output: int
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0

    @property
    def prompt(self) -> int:
        """All that went in, cached or not."""
        return self.input + self.cache_read + self.cache_write


@dataclass(frozen=True, slots=True)
class Ask:
    """A tool call; string ``arguments`` are sent unchanged, including broken JSON."""

    name: str
    arguments: Mapping[str, object] | str
    id: str | None = None

    @property
    def written(self) -> str:
        """The arguments as the model wrote them."""
        return self.arguments if isinstance(self.arguments, str) else msgspec.json.encode(self.arguments).decode()

    def id_like(self, prefix: str) -> str:
        """Return the id, or a new one in the vendor's format."""
        return self.id or f"{prefix}{new_id()}"


@dataclass(frozen=True, slots=True)
class Say:
    """One reply of the model: reasoning, then text, then tool calls.

    Streamed, each of them comes in ``chunks`` pieces (by default words and scraps of JSON), with ``pause`` seconds
    before each piece but the first. With ``hold``, the pieces after so many wait for an event. ``usage`` is estimated
    from lengths by default.
    """

    text: str = ""
    _: KW_ONLY
    reasoning: str = ""
    calls: Sequence[Ask] = ()
    usage: Tokens | None = None
    stop: StopReason | None = None
    chunks: int | None = None
    pause: float = 0.0
    hold: tuple[int, asyncio.Event] | None = None

    @property
    def ending(self) -> StopReason:
        """Why the reply ends: as given, or as its calls suggest."""
        return self.stop or ("tool_calls" if self.calls else "end")

    def pieces(self, text: str) -> list[str]:
        """Cut some text of this reply the way it is streamed."""
        return _WORDS.findall(text) if self.chunks is None else cut_evenly(text, self.chunks)

    def argument_pieces(self, call: Ask) -> list[str]:
        """Cut the arguments of a call the way they are streamed: with no regard to where a value ends."""
        written = call.written
        return cut_evenly(written, self.chunks or -(-len(written) // _ARGUMENT_PIECE))

    def tokens(self, prompt_bytes: int) -> Tokens:
        """Return what this reply used, with an estimate for a request of so many bytes."""
        if self.usage is not None:
            return self.usage
        text_tokens = len(self.text) + sum(len(call.name) + len(call.written) for call in self.calls)
        reasoning_tokens = -(-len(self.reasoning) // _CHARACTERS_PER_TOKEN)
        output = max(1, reasoning_tokens - (-text_tokens // _CHARACTERS_PER_TOKEN))
        return Tokens(input=max(1, prompt_bytes // _CHARACTERS_PER_TOKEN), output=output, reasoning=reasoning_tokens)


def cut_evenly(text: str, pieces: int) -> list[str]:
    """Cut ``text`` into so many pieces of nearly equal length, fewer if it has fewer characters."""
    count = min(pieces, len(text))
    edges = [len(text) * position // count for position in range(count + 1)] if count else []
    return [text[start:end] for start, end in pairwise(edges)]


_SAMPLE_REPLY = Say("These are some good words that come before the fault.")


@dataclass(frozen=True, slots=True)
class Fail:
    """An error in the vendor's form; ``kind`` is OpenAI's ``code`` and Anthropic's ``type``.

    Omitted values follow from the status. ``retry_after`` is in seconds.
    """

    status: int
    _: KW_ONLY
    kind: str | None = None
    message: str | None = None
    param: str | None = None
    retry_after: float | None = None

    def on(self, protocol: ProtocolName) -> "Fail":
        """Return the error for a protocol: the same for all."""
        return self


@dataclass(frozen=True, slots=True)
class VendorFail:
    """The same error as each vendor reports it."""

    chat: Fail
    responses: Fail
    anthropic: Fail

    def on(self, protocol: ProtocolName) -> Fail:
        """Return the error for a protocol."""
        return {"chat": self.chat, "responses": self.responses, "anthropic": self.anthropic}[protocol]


@dataclass(frozen=True, slots=True)
class CutOff:
    """Close the connection after so many pieces of the reply; after none, before any answer."""

    say: Say = _SAMPLE_REPLY
    after: int = 3


@dataclass(frozen=True, slots=True)
class Silence:
    """Keep the connection open but send nothing after so many pieces; after none, not even a status."""

    say: Say = _SAMPLE_REPLY
    after: int = 3


@dataclass(frozen=True, slots=True)
class Garbage:
    """Send broken JSON: in a stream after so many good pieces, else as the whole body."""

    after: int = 0
    say: Say = _SAMPLE_REPLY


@dataclass(frozen=True, slots=True)
class Collapse:
    """Report an error inside a stream that started well, in the protocol's own way."""

    say: Say = _SAMPLE_REPLY
    after: int = 3
    fail: Fail | VendorFail = Fail(500)


@dataclass(frozen=True, slots=True)
class WrongType:
    """Answer 200 with a web page, as a captive portal or a misconfigured proxy does."""

    page: str = "<!doctype html><title>Welcome</title><h1>Please sign in</h1>"


Fault = Fail | VendorFail | CutOff | Silence | Garbage | Collapse | WrongType


def overloaded() -> VendorFail:
    """The provider has too much to do: 503, at Anthropic 529."""
    busy = Fail(503)
    return VendorFail(busy, busy, Fail(529))


def context_too_long() -> VendorFail:
    """The prompt does not fit into the model's window."""
    code = "context_length_exceeded"
    window = "This model's maximum context length is 128000 tokens. However, your messages resulted in 140000 tokens."
    return VendorFail(
        Fail(400, kind=code, param="messages", message=f"{window} Please reduce the length of the messages."),
        Fail(400, kind=code, param="input", message="Your input exceeds the context window of this model."),
        Fail(400, message="prompt is too long: 214000 tokens > 200000 maximum"),
    )


def bad_key() -> VendorFail:
    """The key is not known."""
    unknown = Fail(401)
    return VendorFail(unknown, unknown, unknown)


def no_credit() -> VendorFail:
    """The account is used up: 429 with ``insufficient_quota``, at Anthropic 402 with ``billing_error``."""
    text = "You exceeded your current quota, please check your plan and billing details."
    used_up = Fail(429, kind="insufficient_quota", message=text)
    return VendorFail(used_up, used_up, Fail(402))


def refused() -> VendorFail:
    """A content filter declines the request; for a reply that ends so, use ``Say(stop="refused")``."""
    filtered = Fail(400, kind="content_filter", param="prompt", message="The response was filtered by our policy.")
    flagged = Fail(400, kind="invalid_prompt", message="Invalid prompt: it was flagged by our usage policy.")
    return VendorFail(filtered, flagged, Fail(400, message="Output blocked by content filtering policy"))


def model_unknown() -> VendorFail:
    """The error for an unknown model."""
    text = "The model does not exist or you do not have access to it."
    missing = Fail(404, kind="model_not_found", message=text)
    return VendorFail(missing, missing, Fail(404, message="model: no such model"))


def _join_content(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(part["text"] for part in parts if part.get("type") in {"text", "input_text"})

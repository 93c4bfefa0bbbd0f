"""The provider contract: properties of models, one model call, one streamed reply; and models for images and speech."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Literal, Protocol, TypeVar, cast

from msgspec import Raw, Struct, field

from talaria.core.messages import Message, Usage

_MILLION = 1_000_000
T = TypeVar("T")
Effort = Literal["", "none", "minimal", "low", "medium", "high"]
StopReason = Literal["end", "tool_calls", "length", "refused"]


class ModelInfo(Struct, frozen=True, kw_only=True):
    """A model; prices are in millionths of a dollar per million tokens, so that sums are whole numbers.

    Without a price, the price is unknown; a model that costs nothing is ``free``.
    """

    name: str
    context_limit: int = 32_768
    output_limit: int = 4_096
    input_price: int = 0
    output_price: int = 0
    cache_read_price: int | None = None
    cache_write_price: int | None = None
    tools: bool = True
    images: bool = False
    reasoning: bool = False
    known: bool = True
    free: bool = False

    @property
    def has_price(self) -> bool:
        """Return whether the cost of a call can be calculated."""
        return self.free or bool(self.input_price or self.output_price)

    def describe_price(self) -> str:
        """Return the price of a million tokens, for people."""
        if self.free:
            return "free"
        if not self.has_price:
            return "price unknown"
        return f"${self.input_price / _MILLION:g} in, ${self.output_price / _MILLION:g} out"

    def cost_of(self, usage: Usage) -> int:
        """Return the cost of a call in millionths of a dollar, rounded up; cached tokens are part of the input."""
        read = self.input_price if self.cache_read_price is None else self.cache_read_price
        write = self.input_price if self.cache_write_price is None else self.cache_write_price
        fresh = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        total = (
            max(fresh, 0) * self.input_price
            + usage.cache_read_tokens * read
            + usage.cache_write_tokens * write
            + usage.output_tokens * self.output_price
        )
        return -(-total // _MILLION)


class ListedModel(Struct, frozen=True, omit_defaults=True):
    """A model as its provider lists it; prices as in `ModelInfo`, ``None`` where the list says nothing."""

    name: str
    context_limit: int | None = None
    input_price: int | None = None
    output_price: int | None = None
    cache_read_price: int | None = None
    cache_write_price: int | None = None

    @property
    def has_facts(self) -> bool:
        """Return whether the list says more than the name."""
        return self.context_limit is not None or self.input_price is not None


class ChosenModel(Struct, frozen=True):
    """The selected model; ``why`` is a sentence, and ``limits`` another one for a weak model."""

    provider: str
    model: str
    info: ModelInfo
    why: str
    limits: str = ""


class UsableModel(Struct, frozen=True):
    """A model that could be selected."""

    provider: str
    model: str
    info: ModelInfo
    local: bool = False


class ModelListing(Struct, frozen=True):
    """All selectable models, and a sentence for each configured provider that has none."""

    models: tuple[UsableModel, ...]
    problems: tuple[str, ...] = ()


class ToolSpec(Struct, frozen=True):
    """A tool as described to a model; ``parameters`` is its JSON schema, as bytes that never change."""

    name: str
    description: str
    parameters: Raw


class EncodingMemo:
    """A provider's cache of encoded requests of a session, so that the next one encodes only what is new.

    The session owns it and may clear it at any time: that costs time, never correctness. It serves one provider at a
    time.
    """

    __slots__ = ("_provider", "_value")

    def __init__(self) -> None:
        self._provider: object = None
        self._value: object = None

    def recall(self, provider: object, make: Callable[[], T]) -> T:
        """Return this provider's cached value, or the result of ``make`` if there is none."""
        if self._provider is not provider:
            self._provider, self._value = provider, make()
        return cast("T", self._value)

    def clear(self) -> None:
        """Clear the cache."""
        self._provider = self._value = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EncodingMemo)  # requests that differ only in this field are equal

    def __hash__(self) -> int:
        return 0


class ModelRequest(Struct, frozen=True, kw_only=True):
    """Everything that one model call depends on.

    A provider encodes equal requests to equal bytes, and a request whose messages start with those of an earlier one to
    bytes that start alike, so that prompt caches hit. ``memo`` makes that cheap and changes no byte.
    """

    model: str
    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    max_output_tokens: int | None = None
    temperature: float | None = None
    effort: Effort = ""
    output_schema: Raw | None = None
    stream: bool = True
    memo: EncodingMemo = field(default_factory=EncodingMemo)


class ModelText(Struct, frozen=True, tag="text"):
    """More text."""

    text: str


class ModelReasoning(Struct, frozen=True, tag="reasoning"):
    """More reasoning."""

    text: str


class ModelReply(Struct, frozen=True, tag="reply"):
    """The whole reply; ``usage`` has no cost yet, since a provider knows no prices."""

    message: Message
    stop: StopReason
    usage: Usage


ModelEvent = ModelText | ModelReasoning | ModelReply


class Provider(Protocol):
    """One account with one model provider, over one wire protocol."""

    name: str

    def reply(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply as it grows and, last and once, as a whole.

        Raises a `ProviderError` that says how to react. Closing the generator, or cancelling its task, closes the
        connection.
        """

    async def models(self) -> list[ListedModel]:
        """Return the models available to this account."""

    async def close(self) -> None:
        """Close the connections."""


class MadeImage(Struct, frozen=True):
    """An image as the content of a file; ``cost`` is in millionths of a dollar, ``None`` if it is unknown."""

    content: bytes
    media_type: str
    cost: int | None = None


class SourceImage(Struct, frozen=True):
    """An image to edit."""

    name: str
    content: bytes
    media_type: str


class ImageMaker(Protocol):
    """Image model of a provider."""

    async def make(self, prompt: str, *, size: str = "", sources: tuple[SourceImage, ...] = ()) -> MadeImage:
        """Return a new image, or an edited one if there are sources; raises a `ProviderError` or `OverBudget`."""


class Recording(Struct, frozen=True):
    """Audio, as the content of a file."""

    data: bytes
    media_type: str


class Transcriber(Protocol):
    """Speech-to-text service."""

    async def transcribe(self, file: Path, media_type: str) -> str:
        """Return the text of a recording, empty if nothing is said; raises a `ProviderError`."""


class Speaker(Protocol):
    """Text-to-speech service."""

    async def speak(self, text: str) -> Recording:
        """Return a recording of this text; raises a `ProviderError`."""

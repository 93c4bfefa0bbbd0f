"""What speaks to a model: one call, one streamed reply."""

from collections.abc import AsyncGenerator
from typing import Literal, Protocol

from msgspec import Raw, Struct

from talaria.core.messages import Message, Usage

Effort = Literal["", "none", "minimal", "low", "medium", "high"]
StopReason = Literal["end", "tool_calls", "length", "refused"]


class ToolSpec(Struct, frozen=True):
    """A tool as a model is told of it; ``parameters`` is its JSON schema, as bytes that never change."""

    name: str
    description: str
    parameters: Raw


class ModelRequest(Struct, frozen=True, kw_only=True):
    """Everything that one model call depends on.

    A provider encodes equal requests to equal bytes, and a request whose messages begin with those of an earlier
    one to bytes that begin alike, so that prompt caches hit.
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


class ModelText(Struct, frozen=True, tag="text"):
    """More words."""

    text: str


class ModelReasoning(Struct, frozen=True, tag="reasoning"):
    """More of what the model thinks aloud."""

    text: str


class ModelReply(Struct, frozen=True, tag="reply"):
    """The whole reply; ``usage`` has no cost yet, since a provider knows no prices."""

    message: Message
    stop: StopReason
    usage: Usage


ModelEvent = ModelText | ModelReasoning | ModelReply


class Provider(Protocol):
    """One account with one provider of models, over one wire protocol."""

    name: str

    def reply(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Yield the reply as it grows and, last and once, as a whole.

        Raises a `ProviderError` that says how to react. Closing the generator, or cancelling its task, closes
        the connection.
        """

    async def models(self) -> list[str]:
        """Return the names of the models that this account may use."""

    async def close(self) -> None:
        """Let go of connections."""

"""Have a model look at a picture and say what it shows."""

from contextlib import aclosing

from msgspec import Struct

from talaria.contracts.clock import Clock, SystemClock
from talaria.contracts.provider import ModelReply, ModelRequest, Provider
from talaria.core.errors import MalformedReply
from talaria.core.messages import Image, Message, Text

_OUTPUT_TOKENS = 500


class Sight(Struct, frozen=True):
    """A model that can see, and who is asked for it."""

    provider: Provider
    model: str


async def look_at(sight: Sight, image: Image, question: str, clock: Clock | None = None) -> str:
    """Return what the model answers; raises a `ProviderError`."""
    now = (clock or SystemClock()).now()
    request = ModelRequest(
        model=sight.model,
        messages=(Message(role="user", parts=(Text(question), image), at=now),),
        max_output_tokens=_OUTPUT_TOKENS,
    )
    async with aclosing(sight.provider.reply(request)) as events:
        async for event in events:
            if isinstance(event, ModelReply) and event.message.text.strip():
                return event.message.text.strip()
    raise MalformedReply("the model that was to look at a picture said nothing")

"""Model check: what a configured model answers to a short question."""

from contextlib import aclosing
from datetime import timedelta

from talaria.contracts.clock import SystemClock
from talaria.contracts.provider import ModelReply, ModelRequest, ModelText, Provider
from talaria.core.messages import Message, Text
from talaria.http_client.timeouts import Timeouts

CHECK_TIMEOUTS = Timeouts(connect=timedelta(seconds=5), first_byte=timedelta(seconds=8), silence=timedelta(seconds=8))

_QUESTION = "Answer with the word hello."
_MAX_TOKENS = 64  # OpenAI accepts no less than 16, and some models think before they answer
_SHOWN_CHARACTERS = 60


def matches_model(offered: str, name: str) -> bool:
    """Return whether a provider's model has this name, with or without a prefix before ``/``."""
    return offered == name or offered.endswith(f"/{name}")


async def request_short_reply(provider: Provider, model: str) -> str:
    """Request a reply of a few tokens and return the beginning of its text, empty if the model only thinks."""
    message = Message(role="user", parts=(Text(_QUESTION),), at=SystemClock().now())
    request = ModelRequest(model=model, messages=(message,), max_output_tokens=_MAX_TOKENS)
    said = ""
    async with aclosing(provider.reply(request)) as events:
        async for event in events:
            match event:
                case ModelText(text):
                    said += text
                case ModelReply(message=whole):
                    said = whole.text
            if len(said.strip()) > _SHOWN_CHARACTERS:
                break
    line = " ".join(said.split())
    return f"{line[:_SHOWN_CHARACTERS].rstrip()} …" if len(line) > _SHOWN_CHARACTERS else line

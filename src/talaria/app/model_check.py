"""Model check: whether a configured model answers, asked at almost no cost."""

from contextlib import aclosing
from datetime import timedelta

from talaria.contracts.clock import SystemClock
from talaria.contracts.provider import ModelReply, ModelRequest, ModelText, Provider
from talaria.core.errors import MalformedReply, ModelUnknown
from talaria.core.messages import Message, Text
from talaria.http_client.timeouts import Timeouts
from talaria.providers.presets import is_preset

CHECK_TIMEOUTS = Timeouts(connect=timedelta(seconds=5), first_byte=timedelta(seconds=8), silence=timedelta(seconds=8))

_PUBLIC_LISTS = ("openrouter", "azure")  # a list without the account's own models
_QUESTION = "Answer with the word hello."
_MAX_TOKENS = 64  # OpenAI accepts no less than 16, and some models think before they answer
_SHOWN_CHARACTERS = 60


async def check_model(provider: Provider, model: str) -> None:
    """Check that a model answers; raises `ProviderError` if it does not.

    For a vendor that lists models only with a valid key, the model's presence in the list is enough. Any other provider
    is asked for a few tokens.
    """
    try:
        offered = [one.name for one in await provider.models()]
    except (ModelUnknown, MalformedReply):  # not every server has a list
        offered = []
    needs_key_for_list = is_preset(provider.name) and provider.name not in _PUBLIC_LISTS
    if not (needs_key_for_list and any(matches_model(one, model) for one in offered)):
        await request_short_reply(provider, model)


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

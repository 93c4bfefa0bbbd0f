"""Whether a configured model answers, found out by asking its provider at next to no cost."""

from contextlib import aclosing
from datetime import timedelta

from talaria.contracts.clock import SystemClock
from talaria.contracts.provider import ModelRequest, Provider
from talaria.core.errors import MalformedReply, ModelUnknown
from talaria.core.messages import Message, Text
from talaria.providers.presets import is_preset
from talaria.providers.timeouts import Timeouts

CHECK_TIMEOUTS = Timeouts(connect=timedelta(seconds=5), first_byte=timedelta(seconds=8), silence=timedelta(seconds=8))

_LISTS_MODELS_TO_ANYBODY = ("openrouter",)
_TOKENS = 16  # the least that OpenAI accepts


async def check_model(provider: Provider, model: str) -> None:
    """Return if a model answers, raise `ProviderError` if it does not.

    A list of models with this one in it is enough from a vendor that shows it to its customers only. Any other
    provider is asked for a few tokens.
    """
    try:
        offered = await provider.models()
    except (ModelUnknown, MalformedReply):  # not every server has a list
        offered = []
    needs_key_for_list = is_preset(provider.name) and provider.name not in _LISTS_MODELS_TO_ANYBODY
    if not (needs_key_for_list and any(is_called(one, model) for one in offered)):
        await _ask_for_a_word(provider, model)


def is_called(offered: str, name: str) -> bool:
    """Return whether a provider's model goes by this name, with or without the prefix that some write before it."""
    return offered == name or offered.endswith(f"/{name}")


async def _ask_for_a_word(provider: Provider, model: str) -> None:
    """Ask for a reply of a few tokens, and hang up when it begins."""
    hello = Message(role="user", parts=(Text("Hello"),), at=SystemClock().now())
    request = ModelRequest(model=model, messages=(hello,), max_output_tokens=_TOKENS)
    async with aclosing(provider.reply(request)) as events:
        async for _ in events:
            return

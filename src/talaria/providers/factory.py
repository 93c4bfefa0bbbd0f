"""Create the provider described by a preset."""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from talaria.contracts.provider import Provider
from talaria.core.errors import ModelSource
from talaria.core.lazy import load_module
from talaria.providers.anthropic.settings import AnthropicQuirks, AnthropicSettings
from talaria.providers.http.client import HttpPool
from talaria.providers.http.dial import LOOPBACK
from talaria.providers.http.timeouts import Timeouts
from talaria.providers.openai_chat.settings import ChatQuirks, OpenAIChatSettings
from talaria.providers.openai_responses.settings import OpenAIResponsesSettings, ResponsesQuirks
from talaria.providers.presets import Preset, ProtocolName, is_preset

_ADAPTERS: Mapping[ProtocolName, tuple[str, str]] = {
    "openai_chat": ("talaria.providers.openai_chat.adapter", "OpenAIChat"),
    "openai_responses": ("talaria.providers.openai_responses.adapter", "OpenAIResponses"),
    "anthropic": ("talaria.providers.anthropic.adapter", "Anthropic"),
}


def open_provider(
    preset: Preset, http: HttpPool, api_key: str = "", timeouts: Timeouts | None = None, *, secret: str = ""
) -> Provider:
    """Return the provider described by a preset, for one key; ``secret`` is the name of that key, for errors."""
    adapter = _load_adapter(preset.protocol)
    within = timeouts or Timeouts()
    source = _source(preset, secret if api_key else "")
    name, url, more, quirks = preset.name, preset.base_url, preset.headers, preset.quirks
    match preset.protocol:
        case "openai_chat":
            of_chat = quirks if isinstance(quirks, ChatQuirks) else ChatQuirks()
            chat = OpenAIChatSettings(
                name=name,
                base_url=url,
                api_key=api_key,
                headers=more,
                timeouts=within,
                source=source,
                quirks=of_chat,
            )
            return adapter(chat, http)
        case "openai_responses":
            of_responses = quirks if isinstance(quirks, ResponsesQuirks) else ResponsesQuirks()
            responses = OpenAIResponsesSettings(
                name=name,
                base_url=url,
                api_key=api_key,
                headers=more,
                timeouts=within,
                source=source,
                quirks=of_responses,
            )
            return adapter(responses, http)
        case "anthropic":
            of_messages = quirks if isinstance(quirks, AnthropicQuirks) else AnthropicQuirks()
            messages = AnthropicSettings(
                name=name,
                base_url=url,
                api_key=api_key,
                headers=more,
                timeouts=within,
                source=source,
                quirks=of_messages,
            )
            return adapter(messages, http)


def _source(preset: Preset, secret: str) -> ModelSource:
    return ModelSource(
        provider=preset.name,
        title=preset.title,
        base_url=preset.base_url,
        secret=secret,
        is_local=urlsplit(preset.base_url).hostname in LOOPBACK,
        is_custom=not is_preset(preset.name),
    )


def _load_adapter(protocol: ProtocolName) -> Callable[..., Provider]:
    """Return the adapter class of a protocol; the others are not imported."""
    module, name = _ADAPTERS[protocol]
    adapter: Callable[..., Provider] = getattr(load_module(module), name)
    return adapter

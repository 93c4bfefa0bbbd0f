"""Create the provider described by a preset."""

from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from talaria.contracts.provider import Provider
from talaria.core.errors import ModelSource
from talaria.core.lazy import load_module
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import LOOPBACK
from talaria.http_client.timeouts import Timeouts
from talaria.providers.presets import Preset, ProtocolName, Quirks, is_preset
from talaria.providers.settings import (
    AccountSettings,
    AnthropicQuirks,
    AnthropicSettings,
    ChatQuirks,
    OpenAIChatSettings,
    OpenAIResponsesSettings,
    RequestAuthorizer,
    ResponsesQuirks,
)

_ADAPTERS: Mapping[ProtocolName, tuple[str, str]] = {
    "openai_chat": ("talaria.providers.openai_chat.adapter", "OpenAIChat"),
    "openai_responses": ("talaria.providers.openai_responses.adapter", "OpenAIResponses"),
    "anthropic": ("talaria.providers.anthropic.adapter", "Anthropic"),
}
_SETTINGS: Mapping[ProtocolName, tuple[Callable[..., AccountSettings], type[Quirks]]] = {
    "openai_chat": (OpenAIChatSettings, ChatQuirks),
    "openai_responses": (OpenAIResponsesSettings, ResponsesQuirks),
    "anthropic": (AnthropicSettings, AnthropicQuirks),
}


def open_provider(
    preset: Preset,
    http: HttpPool,
    api_key: str = "",
    timeouts: Timeouts | None = None,
    *,
    secret: str = "",
    authorizer: RequestAuthorizer | None = None,
    login: str = "",
) -> Provider:
    """Return the provider described by a preset, for one key; ``secret`` is the name of that key, for errors.

    ``authorizer`` proves who sends a request, in place of a key; ``login`` is the name of its sign-in, for errors.
    """
    make_settings, quirks = _SETTINGS[preset.protocol]
    settings = make_settings(
        name=preset.name,
        base_url=preset.base_url,
        models_url=preset.models_url,
        api_key=api_key,
        headers=preset.headers,
        timeouts=timeouts or Timeouts(),
        source=_source(preset, secret if api_key else "", login),
        authorizer=authorizer,
        quirks=preset.quirks if isinstance(preset.quirks, quirks) else quirks(),
    )
    return _load_adapter(preset.protocol)(settings, http)


def _source(preset: Preset, secret: str, login: str) -> ModelSource:
    return ModelSource(
        provider=preset.name,
        title=preset.title,
        base_url=preset.base_url,
        secret=secret,
        is_local=urlsplit(preset.base_url).hostname in LOOPBACK,
        is_custom=not is_preset(preset.name),
        login=login,
        url_variable=preset.url_variable,
    )


def _load_adapter(protocol: ProtocolName) -> Callable[..., Provider]:
    """Return the adapter class of a protocol; the others are not imported."""
    module, name = _ADAPTERS[protocol]
    adapter: Callable[..., Provider] = getattr(load_module(module), name)
    return adapter

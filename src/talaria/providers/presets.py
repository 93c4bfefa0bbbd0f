"""Presets of common providers and local servers (URL, protocol, differences), and the provider that one describes."""

from collections.abc import Callable, Mapping
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from talaria.contracts.provider import Provider
from talaria.core.errors import ModelSource, NotFound
from talaria.core.lazy import load_module
from talaria.http_client.client import HttpPool
from talaria.http_client.connection import LOOPBACK, Timeouts
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

AccessKind = Literal["key", "aws", "entra", "google", "login"]
ProtocolName = Literal["openai_chat", "openai_responses", "anthropic"]
Quirks = ChatQuirks | ResponsesQuirks | AnthropicQuirks
_NO_IMAGES = ChatQuirks(effort="unsupported", images=False)
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


class Preset(Struct, frozen=True, kw_only=True):
    """A provider that needs only a key, the secret ``key_name``; a local one has a ``port`` instead.

    ``other_key_names`` are further conventional names of the key, ``url_variables`` environment variables with the URL,
    and ``url_variable`` the one that it was read from.
    ``base_url`` may name variables in braces, with alternatives after ``|``. ``access`` is what may stand in for a key.
    ``lists_models`` is false for a server without a list of the models that can be used, ``lists_prices`` true if that
    list has prices. A provider that is not
    ``automatic`` is used only if the settings name it: its key is often set for other programs. ``login`` is the
    sign-in that may stand in for a key; with ``per_model`` protocols, each model has its own. Calls of a ``free`` one
    cost nothing: it runs models itself on this machine, or a subscription covers them.
    """

    name: str
    title: str
    base_url: str
    protocol: ProtocolName = "openai_chat"
    key_name: str = ""
    other_key_names: tuple[str, ...] = ()
    url_variables: tuple[str, ...] = ()
    url_variable: str = ""
    automatic: bool = True
    access: AccessKind = "key"
    login: str = ""
    per_model: bool = False
    free: bool = False
    lists_models: bool = True
    lists_prices: bool = False
    models_url: str = ""
    port: int | None = None
    quirks: Quirks | None = None
    headers: dict[str, str] = {}


def _make_local_preset(name: str, title: str, port: int, *url_variables: str, free: bool = True) -> Preset:
    return Preset(
        name=name,
        title=title,
        base_url=f"http://127.0.0.1:{port}/v1",
        port=port,
        quirks=ChatQuirks(alternating_roles=True, effort="unsupported"),
        url_variables=url_variables,
        free=free,
    )


def _make_hosted_preset(
    name: str,
    title: str,
    base_url: str,
    *key_names: str,
    quirks: Quirks | None = None,
    automatic: bool = True,
    models_url: str = "",
    lists_models: bool = True,
) -> Preset:
    """Return a provider of Chat Completions whose differences are unknown or few."""
    return Preset(
        name=name,
        title=title,
        base_url=base_url,
        key_name=key_names[0],
        other_key_names=key_names[1:],
        quirks=quirks or ChatQuirks(effort="unsupported"),
        automatic=automatic,
        models_url=models_url,
        lists_models=lists_models,
    )


def _add_prices(preset: Preset) -> Preset:
    """Return a provider whose list of models has prices."""
    return msgspec.structs.replace(preset, lists_prices=True)


PRESETS: tuple[Preset, ...] = (
    Preset(
        name="openai",
        title="OpenAI",
        base_url="https://api.openai.com/v1",
        protocol="openai_responses",
        key_name="OPENAI_API_KEY",
        url_variables=("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    ),
    Preset(
        name="anthropic",
        title="Anthropic",
        base_url="https://api.anthropic.com/v1",
        protocol="anthropic",
        key_name="ANTHROPIC_API_KEY",
        url_variables=("ANTHROPIC_BASE_URL",),
    ),
    Preset(
        name="openrouter",
        title="OpenRouter",
        base_url="https://openrouter.ai/api/v1",
        key_name="OPENROUTER_API_KEY",
        lists_prices=True,
        quirks=ChatQuirks(effort="reasoning", reasoning_back="reasoning", documents=True),
    ),
    Preset(
        name="google",
        title="Google Gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_name="GEMINI_API_KEY",
        other_key_names=("GOOGLE_API_KEY",),
        login="google",
    ),
    Preset(
        name="groq",
        title="Groq",
        base_url="https://api.groq.com/openai/v1",
        key_name="GROQ_API_KEY",
        quirks=ChatQuirks(max_tokens_field="max_completion_tokens"),
    ),
    Preset(
        name="mistral",
        title="Mistral",
        base_url="https://api.mistral.ai/v1",
        key_name="MISTRAL_API_KEY",
        quirks=ChatQuirks(usage_on_request=False, short_call_ids=True, effort="unsupported"),
    ),
    Preset(
        name="deepseek",
        title="DeepSeek",
        base_url="https://api.deepseek.com/v1",
        key_name="DEEPSEEK_API_KEY",
        quirks=ChatQuirks(effort="thinking", schema="json_object", reasoning_back="reasoning_content", images=False),
    ),
    Preset(
        name="xai",
        title="xAI",
        base_url="https://api.x.ai/v1",
        key_name="XAI_API_KEY",
        quirks=ChatQuirks(max_tokens_field="max_completion_tokens"),
    ),
    _add_prices(_make_hosted_preset("together", "Together AI", "https://api.together.xyz/v1", "TOGETHER_API_KEY")),
    _make_hosted_preset("fireworks", "Fireworks AI", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    _make_hosted_preset("cerebras", "Cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", quirks=_NO_IMAGES),
    _make_hosted_preset(
        "perplexity",
        "Perplexity",
        "https://api.perplexity.ai",
        "PERPLEXITY_API_KEY",
        "PPLX_API_KEY",
        lists_models=False,
    ),
    _make_hosted_preset("cohere", "Cohere", "https://api.cohere.ai/compatibility/v1", "COHERE_API_KEY", "CO_API_KEY"),
    _make_hosted_preset("nvidia", "NVIDIA", "https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    _make_hosted_preset("moonshot", "Moonshot AI", "https://api.moonshot.ai/v1", "MOONSHOT_API_KEY", "KIMI_API_KEY"),
    _make_hosted_preset("zhipu", "Zhipu AI", "https://api.z.ai/api/paas/v4", "ZHIPU_API_KEY", "ZAI_API_KEY"),
    _make_hosted_preset("minimax", "MiniMax", "https://api.minimax.io/v1", "MINIMAX_API_KEY"),
    _make_hosted_preset("qwen", "Qwen", "https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    _make_hosted_preset("sambanova", "SambaNova", "https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
    _add_prices(
        _make_hosted_preset("nous", "Nous Research", "https://inference-api.nousresearch.com/v1", "NOUS_API_KEY")
    ),
    _make_hosted_preset(
        "huggingface",
        "Hugging Face",
        "https://router.huggingface.co/v1",
        "HF_TOKEN",
        "HUGGINGFACE_API_KEY",
        automatic=False,
    ),
    _make_hosted_preset(
        "github",
        "GitHub Models",
        "https://models.github.ai/inference",
        "GITHUB_TOKEN",
        automatic=False,
        models_url="https://models.github.ai/catalog/models",
    ),
    Preset(
        name="chatgpt",
        title="ChatGPT",
        base_url="https://chatgpt.com/backend-api/codex",
        protocol="openai_responses",
        access="login",
        login="openai",
        free=True,
        models_url="https://chatgpt.com/backend-api/codex/models?client_version=1.0.0",
        quirks=ResponsesQuirks(always_streamed=True, limits=False, instructions="You are a helpful assistant."),
        headers={"originator": "talaria", "OpenAI-Beta": "responses=experimental"},
    ),
    Preset(
        name="github-copilot",
        title="GitHub Copilot",
        base_url="https://api.githubcopilot.com",
        access="login",
        login="github-copilot",
        free=True,
        per_model=True,
        headers={"Copilot-Integration-Id": "vscode-chat", "Editor-Version": "Talaria/1.0"},
    ),
    Preset(
        name="azure",
        title="Azure OpenAI",
        base_url="{AZURE_OPENAI_ENDPOINT}/openai/v1",
        key_name="AZURE_OPENAI_API_KEY",
        access="entra",
        automatic=False,
        lists_models=False,
        quirks=ChatQuirks(max_tokens_field="max_completion_tokens"),
    ),
    Preset(
        name="bedrock",
        title="Amazon Bedrock",
        base_url="https://bedrock-runtime.{AWS_REGION|AWS_DEFAULT_REGION}.amazonaws.com/openai/v1",
        key_name="AWS_BEARER_TOKEN_BEDROCK",
        access="aws",
        automatic=False,
        lists_models=False,
        quirks=ChatQuirks(effort="unsupported"),
    ),
    Preset(
        name="vertex",
        title="Google Vertex AI",
        base_url="https://{GOOGLE_CLOUD_LOCATION}-aiplatform.googleapis.com/v1/projects/{GOOGLE_CLOUD_PROJECT}"
        "/locations/{GOOGLE_CLOUD_LOCATION}/endpoints/openapi",
        access="google",
        automatic=False,
        lists_models=False,
    ),
    _make_local_preset("ollama", "Ollama", 11434, "OLLAMA_HOST"),
    _make_local_preset("lmstudio", "LM Studio", 1234),
    _make_local_preset("llamacpp", "llama.cpp", 8080),
    _make_local_preset("vllm", "vLLM", 8000),
    _make_local_preset("sglang", "SGLang", 30000),
    _make_local_preset("litellm", "LiteLLM", 4000, free=False),  # a proxy, mostly to models that cost money
)


def is_preset(name: str) -> bool:
    """Return whether a provider is a known one, not one added by its URL."""
    return any(preset.name == name for preset in PRESETS)


def find_preset(name: str) -> Preset:
    """Return the preset with this name, or raise `NotFound`."""
    for preset in PRESETS:
        if preset.name == name:
            return preset
    raise NotFound(f"there is no provider {name!r}; choose from {', '.join(preset.name for preset in PRESETS)}")


def preset_for_url(base_url: str, protocol: ProtocolName = "openai_chat", name: str = "custom") -> Preset:
    """Return a preset for an unknown server."""
    return Preset(name=name, title=base_url, base_url=base_url, protocol=protocol)


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
        source=_make_source(preset, secret if api_key else "", login),
        authorizer=authorizer,
        quirks=preset.quirks if isinstance(preset.quirks, quirks) else quirks(),
    )
    return _load_adapter(preset.protocol)(settings, http)


def _make_source(preset: Preset, secret: str, login: str) -> ModelSource:
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

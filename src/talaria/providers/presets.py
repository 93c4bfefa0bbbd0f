"""Presets of common providers and local servers: URL, protocol, differences."""

from typing import Literal

from msgspec import Struct

from talaria.core.errors import NotFound
from talaria.providers.settings import AnthropicQuirks, ChatQuirks, ResponsesQuirks

ProtocolName = Literal["openai_chat", "openai_responses", "anthropic"]
Quirks = ChatQuirks | ResponsesQuirks | AnthropicQuirks


class Preset(Struct, frozen=True, kw_only=True):
    """A provider that needs only a key, the secret ``key_name``; a local one has a ``port`` instead."""

    name: str
    title: str
    base_url: str
    protocol: ProtocolName = "openai_chat"
    key_name: str = ""
    port: int | None = None
    quirks: Quirks | None = None
    headers: dict[str, str] = {}


def _local(name: str, title: str, port: int) -> Preset:
    quirks = ChatQuirks(alternating_roles=True, effort="unsupported")
    return Preset(name=name, title=title, base_url=f"http://127.0.0.1:{port}/v1", port=port, quirks=quirks)


PRESETS: tuple[Preset, ...] = (
    Preset(
        name="openai",
        title="OpenAI",
        base_url="https://api.openai.com/v1",
        protocol="openai_responses",
        key_name="OPENAI_API_KEY",
    ),
    Preset(
        name="anthropic",
        title="Anthropic",
        base_url="https://api.anthropic.com/v1",
        protocol="anthropic",
        key_name="ANTHROPIC_API_KEY",
    ),
    Preset(
        name="openrouter",
        title="OpenRouter",
        base_url="https://openrouter.ai/api/v1",
        key_name="OPENROUTER_API_KEY",
        quirks=ChatQuirks(effort="reasoning", reasoning_back="reasoning", documents=True),
    ),
    Preset(
        name="google",
        title="Google Gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta/openai",
        key_name="GEMINI_API_KEY",
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
    _local("ollama", "Ollama", 11434),
    _local("lmstudio", "LM Studio", 1234),
    _local("llamacpp", "llama.cpp", 8080),
    _local("vllm", "vLLM", 8000),
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

"""Settings that several agents share: model providers, MCP servers, and the keys that both need."""

import re
from collections.abc import Mapping
from typing import Any

from talaria.core.errors import Refused
from talaria.importers.foreign_files import as_list, as_table, as_text

_PROVIDERS = {
    "alibaba": "qwen",
    "aws-bedrock": "bedrock",
    "azure-foundry": "azure",
    "azure-openai": "azure",
    "claude": "anthropic",
    "dashscope": "qwen",
    "gemini": "google",
    "github-models": "github",
    "glm": "zhipu",
    "grok": "xai",
    "hf": "huggingface",
    "kimi": "moonshot",
    "kimi-coding": "moonshot",
    "llama-cpp": "llamacpp",
    "lm-studio": "lmstudio",
    "oss": "ollama",
    "openai-api": "openai",
    "togetherai": "together",
    "x-ai": "xai",
    "z-ai": "zhipu",
    "zai": "zhipu",
}
_KNOWN = {
    "openai", "anthropic", "openrouter", "google", "groq", "mistral", "deepseek", "xai", "together", "fireworks",
    "cerebras", "perplexity", "cohere", "nvidia", "moonshot", "zhipu", "minimax", "qwen", "sambanova", "nous",
    "huggingface", "github", "azure", "bedrock", "vertex", "ollama", "lmstudio", "llamacpp", "vllm", "sglang",
    "litellm",
}  # fmt: skip
_SIGN_INS = {
    "openai-codex": "openai", "copilot": "github-copilot", "github-copilot": "github-copilot",
    "google-gemini-cli": "google", "gemini-cli": "google",
}  # fmt: skip
_SECRET = re.compile(r"(?i)(key|token|secret|passw|auth|credential|cookie)")
_REFERENCE = re.compile(r"\$\{(?:env:)?(\w+)(?::-[^}]*)?\}")
_SCHEME = re.compile(r"(Bearer|Basic|Token|token|bearer) +(.+)")


def find_provider(name: str) -> str:
    """Return Talaria's name of a provider; raises `Refused` with a reason if it has none."""
    folded = name.strip().lower().replace("_", "-")
    if folded in _SIGN_INS:
        raise Refused(f"It needs a sign-in, which can't be copied: `talaria login {_SIGN_INS[folded]}`.")
    found = _PROVIDERS.get(folded, folded)
    if found not in _KNOWN:
        raise Refused(f"Talaria has no provider {name}. Set it up with `talaria setup`.")
    return found


def make_provider_name(name: str) -> str:
    """Return a valid name for a custom provider."""
    folded = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:32]
    return folded if re.match(r"[a-z]", folded) and folded not in {"own", "embedded"} else f"custom-{folded}".strip("-")


def convert_server(name: str, fields: Mapping[str, Any], keys: dict[str, str]) -> dict[str, Any]:
    """Return an MCP server with Talaria's setting names; secrets in it go to ``keys`` and are referred to by name.

    Raises `Refused` with a reason if Talaria can't use it.
    """
    transport = as_text(fields.get("type")) or as_text(fields.get("transport"))
    command, url = as_text(fields.get("command")), as_text(fields.get("url")) or as_text(fields.get("httpUrl"))
    if transport == "sse" or (url and not command and url.rstrip("/").endswith("/sse")):
        raise Refused("It speaks SSE, which MCP has replaced by streamable HTTP; Talaria knows only that.")
    if not command and not url:
        raise Refused("It has neither a command nor an address.")
    server: dict[str, Any] = {"command": command} if command else {"url": url}
    if command and (args := [as_text(one) for one in as_list(fields.get("args")) if isinstance(one, str)]):
        server["args"] = args
    part = "env" if command else "headers"
    values = fields.get(part) or fields.get("http_headers" if part == "headers" else "environment")
    texts = {key: str(value) for key, value in as_table(values).items() if value is not None}
    if texts:
        server[part] = {key: _hide(name, key, text, keys) for key, text in texts.items()}
    if fields.get("enabled") is False or fields.get("disabled") is True:
        server["enabled"] = False
    tools = as_table(fields.get("tools"))
    for ours, theirs in (("include", tools.get("include")), ("exclude", tools.get("exclude"))):
        if names := [one for one in as_list(theirs) if isinstance(one, str)]:
            server[ours] = names
    _copy_limit(server, "timeout_seconds", fields, ("timeout", "tool_timeout_sec"), 3600)
    _copy_limit(server, "connect_timeout_seconds", fields, ("connect_timeout", "startup_timeout_sec"), 600)
    return server


def _copy_limit(
    server: dict[str, Any], name: str, fields: Mapping[str, Any], theirs: tuple[str, ...], most: float
) -> None:
    value = next((fields[one] for one in theirs if isinstance(fields.get(one), int | float)), None)
    if value and 0 < value <= most:
        server[name] = float(value)


def _hide(server: str, key: str, text: str, keys: dict[str, str]) -> str:
    """Return a value without the secret in it, which is added to ``keys``."""
    text = _REFERENCE.sub(r"${\1}", as_text(text))
    if "${" in text or not text or not _SECRET.search(key):
        return text
    scheme = _SCHEME.fullmatch(text)
    value = scheme[2] if scheme else text
    plain = re.sub(r"\W+", "_", key).upper()
    name = plain if keys.get(plain, value) == value and "_" in plain else _qualify(server, plain)
    keys[name] = value
    return f"{scheme[1]} ${{{name}}}" if scheme else f"${{{name}}}"


def _qualify(server: str, key: str) -> str:
    return f"MCP_{re.sub(r'[^A-Z0-9]+', '_', server.upper()).strip('_')}_{key}"

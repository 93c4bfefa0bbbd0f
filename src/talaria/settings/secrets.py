"""Secrets from the environment or the profile's ``.env``; never shown in full."""

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from talaria.core.errors import NotFound, Refused
from talaria.core.text_formats import parse_assignment, split_env_lines
from talaria.settings.atomic_files import OWNER_ONLY_FILE, lock_folder, read_file, write_file
from talaria.settings.config_file import build_encoding_fault, build_unreadable_fault
from talaria.settings.errors import Fault, ProfileUnusable, SettingsInvalid, SourceLocation
from talaria.settings.profiles import Profile
from talaria.settings.schema import VARIABLE_PREFIX
from talaria.settings.sections.chats import BUILT_IN_PLATFORMS

_SHOWN_TAIL = 4
_LONG_ENOUGH_TO_SHOW_A_TAIL = 16
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_NEEDS_NO_QUOTES = r"[A-Za-z0-9_./:@%+=,~^-]+"


class KnownSecret(Struct, frozen=True):
    """Secret that Talaria can use; those of chat networks are described by their adapters' setup.

    A running process applies a new value at once if the secret is ``live``; otherwise it keeps that from its start.
    """

    name: str
    purpose: str
    hint: str
    live: bool = False


def _build_search_secret(name: str, vendor: str, site: str) -> KnownSecret:
    return KnownSecret(name, f"Search the web with {vendor}.", f"Create one at {site}.", live=True)


def _build_model_secret(name: str, vendor: str) -> KnownSecret:
    hint = f"Create one in the API keys section of your {vendor} account."
    return KnownSecret(name, f"Use {vendor} models.", hint, live=True)


KNOWN_SECRETS = (
    _build_model_secret("OPENAI_API_KEY", "OpenAI"),
    _build_model_secret("ANTHROPIC_API_KEY", "Anthropic"),
    _build_model_secret("OPENROUTER_API_KEY", "OpenRouter"),
    _build_model_secret("GROQ_API_KEY", "Groq"),
    _build_model_secret("MISTRAL_API_KEY", "Mistral"),
    _build_model_secret("DEEPSEEK_API_KEY", "DeepSeek"),
    _build_model_secret("XAI_API_KEY", "xAI"),
    _build_model_secret("GEMINI_API_KEY", "Google Gemini"),
    _build_model_secret("GOOGLE_API_KEY", "Google Gemini"),
    _build_model_secret("TOGETHER_API_KEY", "Together AI"),
    _build_model_secret("FIREWORKS_API_KEY", "Fireworks AI"),
    _build_model_secret("CEREBRAS_API_KEY", "Cerebras"),
    _build_model_secret("PERPLEXITY_API_KEY", "Perplexity"),
    _build_model_secret("PPLX_API_KEY", "Perplexity"),
    _build_model_secret("COHERE_API_KEY", "Cohere"),
    _build_model_secret("CO_API_KEY", "Cohere"),
    _build_model_secret("NVIDIA_API_KEY", "NVIDIA"),
    _build_model_secret("MOONSHOT_API_KEY", "Moonshot AI"),
    _build_model_secret("KIMI_API_KEY", "Moonshot AI"),
    _build_model_secret("ZHIPU_API_KEY", "Zhipu AI"),
    _build_model_secret("ZAI_API_KEY", "Zhipu AI"),
    _build_model_secret("MINIMAX_API_KEY", "MiniMax"),
    _build_model_secret("DASHSCOPE_API_KEY", "Qwen"),
    _build_model_secret("SAMBANOVA_API_KEY", "SambaNova"),
    _build_model_secret("NOUS_API_KEY", "Nous Research"),
    _build_model_secret("HF_TOKEN", "Hugging Face"),
    _build_model_secret("HUGGINGFACE_API_KEY", "Hugging Face"),
    _build_model_secret("GITHUB_TOKEN", "GitHub"),
    _build_model_secret("AZURE_OPENAI_API_KEY", "Azure OpenAI"),
    _build_model_secret("AWS_BEARER_TOKEN_BEDROCK", "Amazon Bedrock"),
    KnownSecret("AZURE_CLIENT_SECRET", "Sign in to Azure.", "The secret of an app registration in Microsoft Entra."),
    KnownSecret("AWS_SECRET_ACCESS_KEY", "Sign requests to AWS.", "Belongs to AWS_ACCESS_KEY_ID."),
    KnownSecret("AWS_SESSION_TOKEN", "Sign requests to AWS.", "Belongs to a temporary AWS_ACCESS_KEY_ID."),
    _build_search_secret("BRAVE_API_KEY", "Brave", "api-dashboard.search.brave.com"),
    _build_search_secret("BRAVE_SEARCH_API_KEY", "Brave", "api-dashboard.search.brave.com"),
    _build_search_secret("TAVILY_API_KEY", "Tavily", "app.tavily.com"),
    _build_search_secret("EXA_API_KEY", "Exa", "dashboard.exa.ai"),
    _build_search_secret("SERPER_API_KEY", "Serper", "serper.dev"),
    _build_search_secret("GOOGLE_CSE_API_KEY", "Google", "console.cloud.google.com"),
    _build_search_secret("KAGI_API_KEY", "Kagi", "kagi.com/api"),
    KnownSecret("TALARIA_API_KEY", "Call this agent over HTTP.", "At least 16 characters; instead of `api-keys`."),
)


def list_secret_names() -> tuple[str, ...]:
    """Return the names of all secrets that Talaria can use, those of the built-in chat networks included."""
    networks = [name for network in BUILT_IN_PLATFORMS.values() for name in network.secret_names]
    return (*(known.name for known in KNOWN_SECRETS), *networks)


class Secrets:
    """Secrets of a profile; environment variables take precedence over the file."""

    def __init__(
        self, stored: Mapping[str, "StoredSecret"], environment: Mapping[str, str], faults: list[Fault]
    ) -> None:
        self.stored = stored
        self._environment = environment
        self.faults = tuple(faults)

    def get(self, name: str) -> str | None:
        """Return the value of a secret, or ``None`` if it is unset or empty."""
        stored = self.stored.get(name)
        return self._environment.get(name) or (stored.value if stored else "") or None

    def locate(self, name: str) -> SourceLocation | None:
        """Return the origin of a secret."""
        if self._environment.get(name):
            return SourceLocation(f"environment variable {name}")
        return self.stored[name].location if self.get(name) else None

    def replace(self, newer: "Secrets") -> None:
        """Take over the values that were read from the file later."""
        self.stored, self.faults = newer.stored, newer.faults

    def names(self) -> tuple[str, ...]:
        """Return all secrets of the file, and the known ones of the environment."""
        return tuple(name for name in dict.fromkeys([*list_secret_names(), *self.stored]) if self.get(name))


class StoredSecret(Struct, frozen=True):
    """Assignment in a ``.env``."""

    value: str
    location: SourceLocation


def read_secrets(profile: Profile, environment: Mapping[str, str]) -> Secrets:
    """Read the secrets of a profile, including the faults of its ``.env``."""
    path = profile.secrets_file
    try:
        text = (read_file(path) or b"").decode("utf-8-sig")
        faults = _check_mode(path)
    except ProfileUnusable as error:
        return Secrets({}, environment, [build_unreadable_fault(error)])
    except UnicodeDecodeError as error:
        return Secrets({}, environment, [build_encoding_fault(path, error)])
    stored, parse_faults = parse_secrets(path, text)
    return Secrets(stored, environment, faults + parse_faults)


def parse_secrets(path: Path, text: str) -> tuple[dict[str, StoredSecret], list[Fault]]:
    """Return the assignments in the text of a ``.env``, and the faults of other lines."""
    stored: dict[str, StoredSecret] = {}
    faults: list[Fault] = []
    for number, line in enumerate(split_env_lines(text), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        location = SourceLocation(str(path), number)
        name, value = parse_assignment(line)
        problem = _find_problem(name, value, stored)
        if problem:
            faults.append(Fault(problem=problem, file=location.file, line=number, key=name))
        if value is not None:
            stored[name] = StoredSecret(value, location)
    return stored, faults


def store_secret(profile: Profile, name: str, value: str) -> None:
    """Write a secret to the ``.env``, replacing its old value; other lines are kept."""
    if not re.fullmatch(_NAME, name):
        raise Refused(f"`{name}` isn't a valid name for a secret. Use letters, digits and underscores.")
    if name.startswith(VARIABLE_PREFIX):
        raise Refused(
            f"`{name}` overrides a setting and isn't a secret. Use `talaria config set` with the setting's key."
        )
    if not value:
        raise Refused(f"The value of `{name}` is empty. To remove a secret, use `talaria config unset {name}`.")
    _rewrite(profile, name, f"{name}={_quote(value)}")


def remove_secret(profile: Profile, name: str) -> None:
    """Remove a secret from the ``.env``; other lines are kept."""
    _rewrite(profile, name, None)


def mask(value: str) -> str:
    """Return the displayable part of a secret: nothing, or the last four characters of a long one."""
    return "****" + (value[-_SHOWN_TAIL:] if len(value) >= _LONG_ENOUGH_TO_SHOW_A_TAIL else "")


def _rewrite(profile: Profile, name: str, assignment: str | None) -> None:
    path = profile.secrets_file
    with lock_folder(profile.folder):
        try:
            lines = split_env_lines((read_file(path) or b"").decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise SettingsInvalid([build_encoding_fault(path, error)]) from error
        others = [line for line in lines if parse_assignment(line)[0] != name]
        if assignment is not None:
            others.insert(_find_position(lines, name), assignment)
        elif others == lines:
            raise NotFound(f"`{name}` isn't in {path}.")
        write_file(path, "".join(line + "\n" for line in others))


def _find_position(lines: list[str], name: str) -> int:
    """Return the position of the assignment of ``name``, or the end."""
    return next((number for number, line in enumerate(lines) if parse_assignment(line)[0] == name), len(lines))


def _find_problem(name: str, value: str | None, stored: Mapping[str, StoredSecret]) -> str:
    if not name:
        return "This line is neither a comment nor NAME=value."
    if value is None:
        return f"The quotes around the value of `{name}` don't match."
    if name.startswith(VARIABLE_PREFIX):
        return f"`{name}` has no effect here; settings belong in config.toml."
    if name in stored:
        return f"`{name}` is already set in line {stored[name].location.line}; this value wins."
    return ""


def _check_mode(path: Path) -> list[Fault]:
    try:
        mode = path.stat().st_mode & 0o777
    except FileNotFoundError:
        return []
    if not mode & ~OWNER_ONLY_FILE & 0o077:
        return []
    problem = f"Other users can read or write this file (mode {mode:04o}). Run `chmod 600` on it."
    return [Fault(problem=problem, file=str(path), expected=f"mode {OWNER_ONLY_FILE:04o}", found=f"mode {mode:04o}")]


def _quote(value: str) -> str:
    if re.fullmatch(_NEEDS_NO_QUOTES, value):
        return value
    if "'" not in value and value.isprintable():
        return f"'{value}'"
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'

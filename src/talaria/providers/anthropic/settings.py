"""Settings of the Messages adapter."""

from msgspec import Struct

from talaria.core.errors import ModelSource
from talaria.providers.http.timeouts import Timeouts


class AnthropicQuirks(Struct, frozen=True, kw_only=True):
    """Server differences; models with the prefixes in ``budget_models`` get a reasoning budget in tokens."""

    default_max_tokens: int = 8192
    budget_models: tuple[str, ...] = (
        "claude-3",
        "claude-opus-4-0",
        "claude-opus-4-1",
        "claude-opus-4-2",
        "claude-opus-4-5",
        "claude-sonnet-4-0",
        "claude-sonnet-4-2",
        "claude-sonnet-4-5",
        "claude-haiku-4-5",
    )
    cache_marks: bool = True
    images: bool = True
    documents: bool = True


class AnthropicSettings(Struct, frozen=True, kw_only=True):
    """One account; ``base_url`` is the part before ``/messages``."""

    name: str
    base_url: str
    api_key: str = ""
    headers: dict[str, str] = {}
    timeouts: Timeouts = Timeouts()
    source: ModelSource | None = None
    quirks: AnthropicQuirks = AnthropicQuirks()

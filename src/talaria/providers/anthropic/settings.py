"""What the Messages adapter has to know of an account."""

from msgspec import Struct

from talaria.core.errors import ModelSource
from talaria.providers.timeouts import Timeouts


class AnthropicQuirks(Struct, frozen=True, kw_only=True):
    """How a server differs; models whose names begin like ``budget_models`` are told how many tokens to think."""

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
    """One account; ``base_url`` is what stands before ``/messages``."""

    name: str
    base_url: str
    api_key: str = ""
    headers: dict[str, str] = {}
    timeouts: Timeouts = Timeouts()
    source: ModelSource | None = None
    quirks: AnthropicQuirks = AnthropicQuirks()

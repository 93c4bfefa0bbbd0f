"""Properties of models: context size, prices, capabilities."""

from msgspec import Struct

from talaria.core.messages import Usage

_MILLION = 1_000_000


class ModelInfo(Struct, frozen=True, kw_only=True):
    """A model; prices are in millionths of a dollar per million tokens, so that sums are whole numbers."""

    name: str
    context_limit: int = 32_768
    output_limit: int = 4_096
    input_price: int = 0
    output_price: int = 0
    cache_read_price: int | None = None
    cache_write_price: int | None = None
    tools: bool = True
    images: bool = False
    reasoning: bool = False
    known: bool = True

    def cost_of(self, usage: Usage) -> int:
        """Return the cost of a call in millionths of a dollar, rounded up; cached tokens are part of the input."""
        read = self.input_price if self.cache_read_price is None else self.cache_read_price
        write = self.input_price if self.cache_write_price is None else self.cache_write_price
        fresh = usage.input_tokens - usage.cache_read_tokens - usage.cache_write_tokens
        total = (
            max(fresh, 0) * self.input_price
            + usage.cache_read_tokens * read
            + usage.cache_write_tokens * write
            + usage.output_tokens * self.output_price
        )
        return -(-total // _MILLION)


class ChosenModel(Struct, frozen=True):
    """The selected model; ``why`` is a sentence, and ``limits`` another one for a weak model."""

    provider: str
    model: str
    info: ModelInfo
    why: str
    limits: str = ""


class UsableModel(Struct, frozen=True):
    """A model that could be selected."""

    provider: str
    model: str
    info: ModelInfo
    local: bool = False


class ModelListing(Struct, frozen=True):
    """All selectable models, and a sentence for each configured provider that has none."""

    models: tuple[UsableModel, ...]
    problems: tuple[str, ...] = ()

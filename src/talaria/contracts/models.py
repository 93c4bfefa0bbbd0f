"""What is known of a model: how much it takes, what it costs, what it can do."""

from msgspec import Struct


class ModelInfo(Struct, frozen=True, kw_only=True):
    """One model; prices are in millionths of a dollar for a million tokens, so that sums are whole numbers."""

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

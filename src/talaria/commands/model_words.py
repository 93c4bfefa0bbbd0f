"""What is told of a model: its name, what it takes, what it costs."""

from talaria.contracts.models import ModelInfo

_MILLION = 1_000_000


def about(info: ModelInfo) -> str:
    """Return a sentence about the length and the price of a conversation with this model."""
    if not info.known:
        return f"Nothing is known of its price; it is taken to have room for {info.context_limit:,} tokens."
    return f"It has room for {info.context_limit:,} tokens and costs {_price(info)}."


def _price(info: ModelInfo) -> str:
    if not info.input_price and not info.output_price:
        return "nothing"
    return f"${info.input_price / _MILLION:g} in, ${info.output_price / _MILLION:g} out for a million of them"

"""Settings of models: which one answers, whose it is, and what is known of it."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from talaria.settings.checks import is_web_address, mask_header_values, name_models

_LIVE = {"live": True}
_COUNT = {"live": True, "check": lambda number: number is None or number > 0, "expected": "a whole number above 0"}
_PRICE = {"live": True, "check": lambda number: number is None or number >= 0, "expected": "a number of at least 0"}


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which model answers, and how."""

    provider: Annotated[
        str,
        Meta(
            description="The provider of the model; empty means the first one that can be used.", extra={"live": True}
        ),
    ] = ""
    name: Annotated[
        str,
        Meta(description="The model, as its provider calls it; empty means a good one of it.", extra=_LIVE),
    ] = ""
    fallbacks: Annotated[
        tuple[str, ...],
        Meta(
            description="Models to ask, in this order, when the one before cannot answer.",
            extra={"live": True, "check": name_models, "expected": "a list, each item written as PROVIDER:MODEL"},
        ),
    ] = ()
    auxiliary: Annotated[
        str,
        Meta(
            description="The model for titles, summaries and judgements; empty means the same one.",
            extra={
                "live": True,
                "check": lambda text: not text or name_models((text,)),
                "expected": "empty or PROVIDER:MODEL",
            },
        ),
    ] = ""
    effort: Annotated[
        Literal["", "none", "minimal", "low", "medium", "high"],
        Meta(
            description="How much a model thinks before it answers; empty means its own way.",
            extra={"live": True, "expected": "empty or one of none, minimal, low, medium, high"},
        ),
    ] = ""
    max_output_tokens: Annotated[
        int,
        Meta(
            ge=0, description="The most tokens of one reply; 0 means as many as the model gives.", extra={"live": True}
        ),
    ] = 0
    temperature: Annotated[
        float | None,
        Meta(
            description="How freely a model chooses its words; not set means its own way.",
            extra={
                "live": True,
                "check": lambda number: number is None or 0 <= number <= 2,
                "expected": "a number from 0 to 2",
            },
        ),
    ] = None


class ProviderAccount(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One provider of models: a known one with something changed, or another by its address."""

    protocol: Annotated[
        Literal["", "openai_chat", "openai_responses", "anthropic"],
        Meta(
            description="What the provider speaks; empty means as known of it, else openai_chat.",
            extra={"expected": "empty or one of openai_chat, openai_responses, anthropic"},
        ),
    ] = ""
    base_url: Annotated[
        str,
        Meta(
            description="Its address, up to and without the name of a call; empty means as known of it.",
            extra={"check": is_web_address, "expected": "empty or an address that begins with https:// or http://"},
        ),
    ] = ""
    key: Annotated[
        str, Meta(description="The name of the secret that holds its key; empty means as known of it, else no key.")
    ] = ""
    keys: Annotated[
        tuple[str, ...],
        Meta(description="The names of more secrets with keys of it, used when one has to rest."),
    ] = ()
    headers: Annotated[
        dict[str, str],
        Meta(description="More headers to send with each request.", extra={"mask": mask_header_values}),
    ] = {}
    connect_timeout_seconds: Annotated[float, Meta(gt=0, le=600, description="How long to wait for a connection.")] = (
        10.0
    )
    first_timeout_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="How long to wait for the beginning of a reply.")
    ] = 120.0
    silence_timeout_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="How long a reply that has begun may pause.")
    ] = 60.0


class ModelFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is true of a model, where the catalogue does not know it or is wrong."""

    context_limit: Annotated[int | None, Meta(description="The most tokens of a conversation.", extra=_COUNT)] = None
    output_limit: Annotated[int | None, Meta(description="The most tokens of one reply.", extra=_COUNT)] = None
    input_price: Annotated[float | None, Meta(description="Dollars for a million tokens of input.", extra=_PRICE)] = (
        None
    )
    output_price: Annotated[float | None, Meta(description="Dollars for a million tokens of output.", extra=_PRICE)] = (
        None
    )
    cache_read_price: Annotated[
        float | None, Meta(description="Dollars for a million tokens of input that come from a cache.", extra=_PRICE)
    ] = None
    cache_write_price: Annotated[
        float | None, Meta(description="Dollars for a million tokens of input that go into a cache.", extra=_PRICE)
    ] = None
    tools: Annotated[bool | None, Meta(description="Whether it can use tools.", extra=_LIVE)] = None
    images: Annotated[bool | None, Meta(description="Whether it can see pictures.", extra=_LIVE)] = None
    reasoning: Annotated[bool | None, Meta(description="Whether it can think before it answers.", extra=_LIVE)] = None


class Embedded(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The small model inside Talaria."""

    enabled: Annotated[
        bool,
        Meta(
            description="Whether it answers where there is neither a key nor a local server, if it is installed.",
            extra={"live": True},
        ),
    ] = True

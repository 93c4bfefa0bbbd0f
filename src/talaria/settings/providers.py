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
        Meta(description="The provider of the model; empty means the first usable one.", extra={"live": True}),
    ] = ""
    name: Annotated[
        str,
        Meta(description="The model, as its provider calls it; empty means a good default.", extra=_LIVE),
    ] = ""
    fallbacks: Annotated[
        tuple[str, ...],
        Meta(
            description="Fall-back models, in this order, for when the one before fails.",
            extra={"live": True, "check": name_models, "expected": "a list, each item written as PROVIDER:MODEL"},
        ),
    ] = ()
    auxiliary: Annotated[
        str,
        Meta(
            description="The model for titles, summaries and goal verdicts; empty means the main model.",
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
            description="Reasoning effort; empty means the model's default.",
            extra={"live": True, "expected": "empty or one of none, minimal, low, medium, high"},
        ),
    ] = ""
    max_output_tokens: Annotated[
        int,
        Meta(ge=0, description="The most tokens of one reply; 0 means no limit.", extra={"live": True}),
    ] = 0
    temperature: Annotated[
        float | None,
        Meta(
            description="Sampling temperature; not set means the model's default.",
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
            description="The protocol of the provider; empty means the known one, else openai_chat.",
            extra={"expected": "empty or one of openai_chat, openai_responses, anthropic"},
        ),
    ] = ""
    base_url: Annotated[
        str,
        Meta(
            description="Its base URL, usually ending in /v1; empty means the known one.",
            extra={"check": is_web_address, "expected": "empty or an address that begins with https:// or http://"},
        ),
    ] = ""
    key: Annotated[
        str, Meta(description="The name of the secret with its API key; empty means the known one, else no key.")
    ] = ""
    keys: Annotated[
        tuple[str, ...],
        Meta(description="The names of more secrets with API keys, used while one is rate-limited."),
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
        float, Meta(gt=0, le=3600, description="How long a reply may pause once it has begun.")
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
            description="Whether it is used, if installed, when there is no API key and no local server.",
            extra={"live": True},
        ),
    ] = True

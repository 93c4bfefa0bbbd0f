"""Settings of models and their providers: accounts, sign-ins, the embedded model, images and voice."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from talaria.settings.sections.checks import are_model_names, is_voice_service, is_web_address, mask_header_values

_LIVE: dict[str, Any] = {"live": True}
_COUNT = {"live": True, "check": lambda number: number is None or number > 0, "expected": "a whole number above 0"}
_PRICE = {"live": True, "check": lambda number: number is None or number >= 0, "expected": "a number of at least 0"}


class ModelSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Model to use, and its options."""

    provider: Annotated[
        str,
        Meta(description="Provider of the model; empty means the first usable one.", extra={"live": True}),
    ] = ""
    name: Annotated[
        str,
        Meta(description="Model, as its provider calls it; empty means a good default.", extra=_LIVE),
    ] = ""
    aliases: Annotated[
        dict[str, str],
        Meta(
            description="Short names for models, for `/model` and `-m`, each for PROVIDER:MODEL.",
            extra={
                "live": True,
                "check": lambda names: are_model_names(tuple(names.values())),
                "expected": "short names, each with PROVIDER:MODEL",
            },
        ),
    ] = {}
    fallbacks: Annotated[
        tuple[str, ...],
        Meta(
            description="Fallback models, tried in this order when the previous one fails.",
            extra={"live": True, "check": are_model_names, "expected": "a list, each item written as PROVIDER:MODEL"},
        ),
    ] = ()
    auxiliary: Annotated[
        str,
        Meta(
            description="Model for titles, summaries and goal verdicts; empty means the main model.",
            extra={
                "live": True,
                "check": lambda text: not text or are_model_names((text,)),
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
        Meta(ge=0, description="Maximum tokens per reply; 0 means no limit.", extra={"live": True}),
    ] = 0
    temperature: Annotated[
        float | None,
        Meta(
            description="Sampling temperature; unset means the model's default.",
            extra={
                "live": True,
                "check": lambda number: number is None or 0 <= number <= 2,
                "expected": "a number from 0 to 2",
            },
        ),
    ] = None


class ProviderAccount(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Model provider: a known one with changes, or a custom one by its address."""

    protocol: Annotated[
        Literal["", "openai_chat", "openai_responses", "anthropic"],
        Meta(
            description="Protocol of the provider; empty means the known one, else openai_chat.",
            extra={"live": True, "expected": "empty or one of openai_chat, openai_responses, anthropic"},
        ),
    ] = ""
    base_url: Annotated[
        str,
        Meta(
            description="Base URL, usually ending in /v1; empty means the known one.",
            extra={
                "live": True,
                "check": is_web_address,
                "expected": "empty or an address that starts with https:// or http://",
            },
        ),
    ] = ""
    key: Annotated[
        str,
        Meta(
            description="Name of the secret with the API key; empty means the known one, else no key.",
            extra=_LIVE,
        ),
    ] = ""
    keys: Annotated[
        tuple[str, ...],
        Meta(description="Names of more secrets with API keys, used while one is rate-limited.", extra=_LIVE),
    ] = ()
    headers: Annotated[
        dict[str, str],
        Meta(description="Extra headers to send with each request.", extra={"live": True, "mask": mask_header_values}),
    ] = {}
    connect_timeout_seconds: Annotated[
        float, Meta(gt=0, le=600, description="How long to wait for a connection.", extra=_LIVE)
    ] = 10.0
    first_timeout_seconds: Annotated[
        float, Meta(gt=0, le=3600, description="How long to wait for the start of a reply.", extra=_LIVE)
    ] = 120.0
    silence_timeout_seconds: Annotated[
        float,
        Meta(gt=0, le=3600, description="How long a reply may pause after it has started.", extra=_LIVE),
    ] = 60.0


class LoginSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to a sign-in with a subscription, for a proxy or an OAuth client of your own."""

    issuer: Annotated[
        str,
        Meta(
            description="Authorization server, which publishes its endpoints (OpenID Connect Discovery).",
            extra={
                "live": True,
                "check": is_web_address,
                "expected": "empty or an address that starts with https:// or http://",
            },
        ),
    ] = ""
    client_id: Annotated[str, Meta(description="Client to sign in with; empty means the known one.", extra=_LIVE)] = ""
    scope: Annotated[str, Meta(description="Scopes to ask for; empty means the known ones.", extra=_LIVE)] = ""
    exchange_url: Annotated[
        str,
        Meta(
            description="Where a GitHub token is exchanged for one of Copilot; empty means the known address.",
            extra={
                "live": True,
                "check": is_web_address,
                "expected": "empty or an address that starts with https:// or http://",
            },
        ),
    ] = ""


class ModelFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Properties of a model that the catalogue does not know or has wrong."""

    context_limit: Annotated[int | None, Meta(description="Context size in tokens.", extra=_COUNT)] = None
    output_limit: Annotated[int | None, Meta(description="Maximum tokens per reply.", extra=_COUNT)] = None
    input_price: Annotated[float | None, Meta(description="Dollars per million input tokens.", extra=_PRICE)] = None
    output_price: Annotated[float | None, Meta(description="Dollars per million output tokens.", extra=_PRICE)] = None
    cache_read_price: Annotated[
        float | None, Meta(description="Dollars per million input tokens read from the cache.", extra=_PRICE)
    ] = None
    cache_write_price: Annotated[
        float | None, Meta(description="Dollars per million input tokens written to the cache.", extra=_PRICE)
    ] = None
    tools: Annotated[bool | None, Meta(description="Whether the model can use tools.", extra=_LIVE)] = None
    images: Annotated[bool | None, Meta(description="Whether the model can see images.", extra=_LIVE)] = None
    reasoning: Annotated[
        bool | None, Meta(description="Whether the model can reason before it answers.", extra=_LIVE)
    ] = None


class EmbeddedSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Embedded small model."""

    enabled: Annotated[
        bool,
        Meta(
            description="Whether the built-in model, if installed, is used when there is no API key and "
            "no local server.",
            extra={"live": True},
        ),
    ] = True


class ImageSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Images that the agent makes."""

    generate: Annotated[
        str,
        Meta(
            description="Provider and model that make images; empty turns the tool off.",
            extra={
                "check": lambda text: not text or are_model_names((text,)),
                "expected": "empty or PROVIDER:MODEL, for example openai:gpt-image-1",
            },
        ),
    ] = ""
    price: Annotated[
        float,
        Meta(ge=0, description="Dollars per image, which counts towards `budget`; 0 means unknown.", extra=_LIVE),
    ] = 0.0
    seconds: Annotated[float, Meta(ge=1, le=3600, description="How long making an image may take.")] = 180.0


def _describe_service(example: str) -> dict[str, Any]:
    expected = f"empty, `command`, or PROVIDER:MODEL, for example {example}"
    return {"live": True, "check": is_voice_service, "expected": expected}


class VoiceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Voice notes in chats: transcription, and spoken replies."""

    transcribe: Annotated[
        str,
        Meta(
            description="Provider and model that transcribe voice notes, or `command`; empty turns this off.",
            extra=_describe_service("openai:gpt-4o-mini-transcribe"),
        ),
    ] = ""
    command: Annotated[
        str,
        Meta(
            description="Shell command that prints the text spoken in `{file}`, for `voice.transcribe`.",
            extra=_LIVE,
        ),
    ] = ""
    speak: Annotated[
        Literal["off", "voice-notes-only", "always"],
        Meta(description="Replies that are also sent as speech.", extra=_LIVE),
    ] = "off"
    speaker: Annotated[
        str,
        Meta(
            description="Provider and model that speak text, or `command`; empty turns this off.",
            extra=_describe_service("openai:gpt-4o-mini-tts"),
        ),
    ] = ""
    voice: Annotated[str, Meta(min_length=1, description="The provider's voice to use.", extra=_LIVE)] = "alloy"
    speak_command: Annotated[
        str,
        Meta(
            description="Shell command that reads text from standard input and writes speech to `{file}` "
            "(Opus in Ogg, WAV or MP3).",
            extra=_LIVE,
        ),
    ] = ""
    seconds: Annotated[
        float, Meta(ge=1, le=3600, description="How long transcribing or speaking may take.", extra=_LIVE)
    ] = 60.0

"""Settings of attachments, images and voice messages."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from talaria.settings.sections.checks import are_model_names, is_voice_service

_LIVE: dict[str, Any] = {"live": True}


def _service(example: str) -> dict[str, Any]:
    expected = f"empty, `command`, or PROVIDER:MODEL, for example {example}"
    return {"live": True, "check": is_voice_service, "expected": expected}


class MediaSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files in chat messages, downloaded before the turn of their message starts."""

    fetch_seconds: Annotated[
        float, Meta(ge=1, le=3600, description="How long fetching one file may take.", extra=_LIVE)
    ] = 60.0
    file_megabytes: Annotated[
        float, Meta(gt=0, le=2000, description="Maximum size of a fetched file.", extra=_LIVE)
    ] = 50.0
    describe_stickers: Annotated[
        bool,
        Meta(description="Whether a vision model describes stickers, once for each sticker.", extra=_LIVE),
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


class VoiceSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Voice notes in chats: transcription, and spoken replies."""

    transcribe: Annotated[
        str,
        Meta(
            description="Provider and model that transcribe voice notes, or `command`; empty turns this off.",
            extra=_service("openai:gpt-4o-mini-transcribe"),
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
            extra=_service("openai:gpt-4o-mini-tts"),
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

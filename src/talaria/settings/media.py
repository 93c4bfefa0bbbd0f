"""Settings of what people send besides words, and of what is spoken."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from talaria.settings.checks import is_voice_service

_LIVE: dict[str, Any] = {"live": True}
_SERVICE = {
    "live": True,
    "check": is_voice_service,
    "expected": "empty, `command`, or PROVIDER:MODEL such as openai:gpt-4o-mini-transcribe",
}


class Media(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Files of messages in chats, which are fetched before the turn of their message begins."""

    fetch_seconds: Annotated[
        float, Meta(ge=1, le=3600, description="How long one file may take to be fetched.", extra=_LIVE)
    ] = 60.0
    file_megabytes: Annotated[
        float, Meta(gt=0, le=2000, description="How large a file may be that is fetched.", extra=_LIVE)
    ] = 50.0
    describe_stickers: Annotated[
        bool,
        Meta(description="Whether a model that can see describes a sticker, once for each sticker.", extra=_LIVE),
    ] = True


class Voice(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Voice notes in chats: what writes down what is said in them, and what speaks replies."""

    transcribe: Annotated[
        str,
        Meta(
            description="What writes down voice notes: a provider and its model, or `command`; empty means nothing.",
            extra=_SERVICE,
        ),
    ] = ""
    command: Annotated[
        str,
        Meta(
            description="A shell command that prints what is said in `{file}`, for `voice.transcribe`.",
            extra=_LIVE,
        ),
    ] = ""
    speak: Annotated[
        Literal["off", "voice-notes-only", "always"],
        Meta(description="Which replies are also spoken.", extra=_LIVE),
    ] = "off"
    speaker: Annotated[
        str,
        Meta(
            description="What speaks: a provider and its model, or `command`; empty means nothing.",
            extra=_SERVICE,
        ),
    ] = ""
    voice: Annotated[str, Meta(min_length=1, description="The voice in which a provider speaks.", extra=_LIVE)] = (
        "alloy"
    )
    speak_command: Annotated[
        str,
        Meta(
            description="A shell command that reads words and speaks them into `{file}` (Opus in Ogg).",
            extra=_LIVE,
        ),
    ] = ""
    seconds: Annotated[
        float, Meta(ge=1, le=3600, description="How long hearing or speaking may take.", extra=_LIVE)
    ] = 60.0

"""Speech to text and text to speech."""

from pathlib import Path
from typing import Protocol

from msgspec import Struct


class Recording(Struct, frozen=True):
    """Audio, as the content of a file."""

    data: bytes
    media_type: str


class Transcriber(Protocol):
    """Speech-to-text service."""

    async def transcribe(self, file: Path, media_type: str) -> str:
        """Return the text of a recording, empty if nothing is said; raises a `ProviderError`."""


class Speaker(Protocol):
    """Text-to-speech service."""

    async def speak(self, text: str) -> Recording:
        """Return a recording of this text; raises a `ProviderError`."""

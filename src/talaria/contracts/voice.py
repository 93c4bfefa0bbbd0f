"""What hears and what speaks: recordings become words, words become recordings."""

from pathlib import Path
from typing import Protocol

from msgspec import Struct


class Recording(Struct, frozen=True):
    """Sound, as the content of a file."""

    data: bytes
    media_type: str


class Transcriber(Protocol):
    """Hears."""

    async def transcribe(self, file: Path, media_type: str) -> str:
        """Return what is said in a recording, empty where nothing is; raises a `ProviderError`."""


class Speaker(Protocol):
    """Speaks."""

    async def speak(self, text: str) -> Recording:
        """Return a recording in which this is said; raises a `ProviderError`."""

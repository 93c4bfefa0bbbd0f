"""Media models: generation and editing of images, speech to text, text to speech."""

from pathlib import Path
from typing import Protocol

from msgspec import Struct


class MadeImage(Struct, frozen=True):
    """An image as the content of a file; ``cost`` is in millionths of a dollar, ``None`` if it is unknown."""

    content: bytes
    media_type: str
    cost: int | None = None


class SourceImage(Struct, frozen=True):
    """An image to edit."""

    name: str
    content: bytes
    media_type: str


class ImageMaker(Protocol):
    """Image model of a provider."""

    async def make(self, prompt: str, *, size: str = "", sources: tuple[SourceImage, ...] = ()) -> MadeImage:
        """Return a new image, or an edited one if there are sources; raises a `ProviderError` or `OverBudget`."""


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

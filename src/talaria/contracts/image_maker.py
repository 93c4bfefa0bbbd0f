"""Generation and editing of images."""

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

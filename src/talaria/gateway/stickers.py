"""Sticker descriptions: each sticker is described once by a vision model and then stored."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from talaria.agent.auxiliary import VisionModel, describe_image
from talaria.contracts.platform import Attachment
from talaria.contracts.store import Store
from talaria.contracts.values import NamedValue
from talaria.core.errors import TalariaError
from talaria.core.image_types import image_type
from talaria.core.messages import Image, Text

STICKER = NamedValue("sticker", str)  # the description, by network and id
_QUESTION = "This is a sticker from a chat. Say in one short sentence what it shows and what the sender means by it."
_MAX_CHARACTERS = 300
_SECONDS = 60.0

log = logging.getLogger(__name__)


class StickerDescriber:
    """Describer of stickers by their unique ids; ``find`` returns a vision model, if there is one."""

    def __init__(
        self, store: Store, find: Callable[[], Awaitable[VisionModel | None]], seconds: float = _SECONDS
    ) -> None:
        self._store = store
        self._find_model = find
        self._seconds = seconds
        self._locks: dict[str, asyncio.Lock] = {}

    async def known(self, platform: str, attachment: Attachment) -> Text | None:
        """Return the stored description of a sticker; ``None`` if it should be described first.

        For a sticker that cannot be described, the hint of the network is returned.
        """
        if not attachment.unique_id or not attachment.media_type.startswith("image/"):
            return _make_text(attachment, "")
        stored = await self._store.read(lambda tx: STICKER.get(tx, _key(platform, attachment)))
        return _make_text(attachment, stored) if stored is not None else None

    async def described(self, platform: str, attachment: Attachment, file: Path) -> Text:
        """Return and store the description of a sticker; without one, return the hint of the network."""
        key = _key(platform, attachment)
        async with self._locks.setdefault(key, asyncio.Lock()):
            known = await self.known(platform, attachment)
            if known is None:
                description = await self._describe_image(file)
                if description:
                    await self._store.write(lambda tx: STICKER.write(tx, key, description))
                known = _make_text(attachment, description)
        self._locks.pop(key, None)
        return known

    async def _describe_image(self, file: Path) -> str:
        try:
            media_type = await asyncio.to_thread(_media_type, file)
            vision_model = await self._find_model() if media_type else None
            if media_type is None or vision_model is None:
                return ""
            async with asyncio.timeout(self._seconds):
                description = await describe_image(vision_model, Image(str(file), media_type), _QUESTION)
        except (TalariaError, TimeoutError) as error:
            log.warning("couldn't describe a sticker: %s", str(error) or "it took too long")
            return ""
        return " ".join(description.split())[:_MAX_CHARACTERS]


def _key(platform: str, attachment: Attachment) -> str:
    return f"{platform}:{attachment.unique_id}"


def _make_text(attachment: Attachment, description: str) -> Text:
    sticker = f"sticker {attachment.hint}".rstrip()
    return Text(f"[{sticker}: {description}]" if description else f"[{sticker}]")


def _media_type(file: Path) -> str | None:
    with file.open("rb") as opened:
        return image_type(opened.read(16))

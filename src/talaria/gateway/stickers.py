"""Stickers in words: each is looked at once by a model that can see, and then remembered."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from talaria.agent.seeing import Sight, look_at
from talaria.contracts.platform import Attachment
from talaria.contracts.store import Store
from talaria.core.errors import TalariaError
from talaria.core.messages import Image, Text
from talaria.core.pictures import picture_type

_QUESTION = "This is a sticker from a chat. Say in one short sentence what it shows and what somebody means by it."
_LONGEST = 300
_SECONDS = 60.0

log = logging.getLogger(__name__)


class Stickers:
    """Knows stickers by their unique ids; ``find`` returns a model that can see, if there is one."""

    def __init__(self, store: Store, find: Callable[[], Awaitable[Sight | None]], seconds: float = _SECONDS) -> None:
        self._store = store
        self._find = find
        self._seconds = seconds
        self._looking: dict[str, asyncio.Lock] = {}

    async def known(self, platform: str, attachment: Attachment) -> Text | None:
        """Return what is known of a sticker without looking; ``None`` for one that should be looked at."""
        if not attachment.unique_id or not attachment.media_type.startswith("image/"):
            return _told(attachment, "")
        kept = await self._store.read(lambda tx: tx.state.get(_key(platform, attachment)))
        return _told(attachment, kept.value) if kept else None

    async def described(self, platform: str, attachment: Attachment, file: Path) -> Text:
        """Return what a sticker shows, and remember it; where no model can tell, what the network says about it."""
        key = _key(platform, attachment)
        async with self._looking.setdefault(key, asyncio.Lock()):
            known = await self.known(platform, attachment)
            if known is None:
                words = await self._seen(file)
                if words:
                    await self._store.write(lambda tx: tx.state.put(key, words))
                known = _told(attachment, words)
        self._looking.pop(key, None)
        return known

    async def _seen(self, file: Path) -> str:
        try:
            media_type = await asyncio.to_thread(_media_type, file)
            sight = await self._find() if media_type else None
            if media_type is None or sight is None:
                return ""
            async with asyncio.timeout(self._seconds):
                words = await look_at(sight, Image(str(file), media_type), _QUESTION)
        except (TalariaError, TimeoutError) as error:
            log.warning("a sticker was not described: %s", str(error) or "it took too long")
            return ""
        return " ".join(words.split())[:_LONGEST]


def _key(platform: str, attachment: Attachment) -> str:
    return f"sticker:{platform}:{attachment.unique_id}"


def _told(attachment: Attachment, words: str) -> Text:
    sticker = f"sticker {attachment.hint}".rstrip()
    return Text(f"[{sticker}: {words}]" if words else f"[{sticker}]")


def _media_type(file: Path) -> str | None:
    with file.open("rb") as opened:
        return picture_type(opened.read(16))

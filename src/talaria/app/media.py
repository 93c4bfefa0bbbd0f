"""Put together what a gateway does with files: those that people send, and replies that are spoken."""

from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from msgspec import Struct

from talaria.app.senses import Senses
from talaria.contracts.platform import Platform
from talaria.gateway.hearing import Hearing
from talaria.gateway.speaking import Manner, SpokenReplies
from talaria.gateway.stickers import Stickers
from talaria.gateway.unpacking import FetchLimits, Unpacker

if TYPE_CHECKING:  # the house has a gateway; this only looks at it
    from talaria.app.house import House

_MEGABYTE = 1_000_000


class MediaDesk(Struct, frozen=True):
    """What fetches files before a turn, and what speaks behind it."""

    unpacker: Unpacker
    spoken: SpokenReplies


def open_media(
    house: "House", platforms: Mapping[str, Platform], wake: Callable[[str], None], closing: AsyncExitStack
) -> MediaDesk:
    """Return it for these networks, by name; ``wake`` stirs the delivery of one, leaving ``closing`` ends it all."""
    senses = Senses(house)
    closing.push_async_callback(senses.close)
    folder = house.profile.media_folder

    def limits() -> FetchLimits:
        media = house.settings.media
        return FetchLimits(media.fetch_seconds, round(media.file_megabytes * _MEGABYTE))

    def manner() -> Manner:
        return Manner(house.settings.voice.speak, house.settings.voice.seconds)

    hearing = Hearing(senses.transcriber, lambda: house.settings.voice.seconds, house.mask)
    stickers = Stickers(house.store, senses.sight)
    return MediaDesk(
        Unpacker(platforms, folder, limits, hearing, stickers, house.mask),
        SpokenReplies(house.store, platforms, folder, senses.speaker, manner, wake),
    )
